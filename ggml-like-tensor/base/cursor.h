// The only reader of untrusted bytes. It is little-endian and bounds-checked. Every read names its
// field, so that a short file gives "x.gguf: tensor count: 8 bytes wanted at offset 16, file has
// 20: it is cut short or damaged".
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

class Cursor {
 public:
  Cursor(std::string file, std::span<const std::byte> bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  template <class T>
  T take(std::string_view field) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    T value;
    std::memcpy(&value, raw(sizeof(T), field).data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> raw(uint64_t n, std::string_view field) {
    if (n > bytes_.size() - at_)
      fail(Exit::bad_file,
           "{}: {}: {} bytes wanted at offset {}, file has {}: it is cut short or damaged", file_,
           field, n, at_, bytes_.size());
    auto part = bytes_.subspan(at_, n);
    at_ += n;
    return part;
  }
  // A string after its 64-bit length; view() refers to the bytes in place.
  std::string text(std::string_view field) { return std::string(view(field)); }
  std::string_view view(std::string_view field) {
    auto part = raw(take<uint64_t>(field), field);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  // Checks a count of items that take at least min_bytes each, before any memory is allocated for
  // them.
  uint64_t count(uint64_t n, uint64_t min_bytes, std::string_view field) const {
    if (n > remaining() / min_bytes)
      fail(Exit::bad_file,
           "{}: {} is {}, but only {} bytes are left in the file: it is cut short or damaged",
           file_, field, n, remaining());
    return n;
  }
  void seek(uint64_t to, std::string_view field) {
    if (to > bytes_.size())
      fail(Exit::bad_file, "{}: {}: offset {} is past the end, file has {} bytes", file_, field, to,
           bytes_.size());
    at_ = to;
  }
  uint64_t at() const { return at_; }
  uint64_t remaining() const { return bytes_.size() - at_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

}  // namespace chaski
