// The list types of metadata. A vocabulary is a list of some hundred thousand texts, so each type
// takes about as much memory as the list takes in a file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// The iterator of the lists below.
template <class List, class Item>
class ListIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Item;
  using difference_type = ptrdiff_t;
  using pointer = void;
  using reference = Item;

  ListIterator(const List& list, size_t at) : list_(&list), at_(at) {}
  Item operator*() const { return (*list_)[at_]; }
  ListIterator& operator++() { return ++at_, *this; }
  ListIterator operator++(int) { return {*list_, at_++}; }
  bool operator==(const ListIterator&) const = default;

 private:
  const List* list_;
  size_t at_;
};

// Strings stored one after another; each takes four bytes more than its text.
class Texts {
 public:
  Texts() = default;
  Texts(std::initializer_list<std::string_view> all);
  Texts(const std::vector<std::string>& all);

  void reserve(size_t count, size_t bytes);
  void push_back(std::string_view text);  // throws Error(bad_file) beyond 4 GiB
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  // valid until the next push_back
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  ListIterator<Texts, std::string_view> begin() const { return {*this, 0}; }
  ListIterator<Texts, std::string_view> end() const { return {*this, size()}; }
  bool operator==(const Texts&) const = default;

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;  // in bytes_
};

// Numbers that are read as `Wide` but stored in the width that they have in the file. A list made
// from a vector uses the smallest width that holds them all.
template <class Wide>
class Numbers {
 public:
  Numbers() = default;
  Numbers(std::initializer_list<Wide> all) : Numbers(std::span(all.begin(), all.size())) {}
  Numbers(const std::vector<Wide>& all) : Numbers(std::span(all)) {}
  // Makes a list of as many little-endian Ts as there are bytes for.
  template <class T>
  static Numbers of(std::span<const std::byte> stored) {
    Numbers list;
    list.bytes_.assign(stored.begin(), stored.end());
    list.template read_as<T>();
    return list;
  }

  size_t size() const { return bytes_.size() / width_; }
  bool empty() const { return bytes_.empty(); }
  Wide operator[](size_t i) const { return read_(bytes_.data() + i * width_); }
  ListIterator<Numbers, Wide> begin() const { return {*this, 0}; }
  ListIterator<Numbers, Wide> end() const { return {*this, size()}; }
  bool operator==(const Numbers& other) const;

 private:
  explicit Numbers(std::span<const Wide> all);
  template <class T>
  void read_as() {
    width_ = sizeof(T);
    read_ = [](const std::byte* at) {
      T number;
      std::memcpy(&number, at, sizeof number);
      return static_cast<Wide>(number);
    };
  }

  std::vector<std::byte> bytes_;
  size_t width_ = sizeof(Wide);
  Wide (*read_)(const std::byte* at) = nullptr;  // reads one number
};

using Ints = Numbers<int64_t>;
using Floats = Numbers<double>;

}  // namespace chaski
