// Finds the index of an item by its hash. The items themselves are in a separate list; this table
// takes 12 bytes for each. It never grows: its capacity is set at construction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chaski {

class HashIndex {
 public:
  explicit HashIndex(size_t most) : slots_(most + most / 2 + 1) {}

  // The number stored with this hash for which same(number) holds; -1 if there is none.
  template <class Same>
  int32_t find(uint64_t hash, const Same& same) const {
    return static_cast<int32_t>(slots_[place(hash, same)].number) - 1;
  }
  // If an equal item is already there, it keeps its number.
  template <class Same>
  void put(uint64_t hash, int32_t number, const Same& same) {
    Slot& slot = slots_[place(hash, same)];
    if (slot.number == 0) slot = {static_cast<uint32_t>(hash), static_cast<uint32_t>(number) + 1};
  }

 private:
  struct Slot {
    uint32_t hash = 0;    // the low half
    uint32_t number = 0;  // the number plus one; 0: free
  };

  // The slot of the item, or the free slot where it belongs.
  template <class Same>
  size_t place(uint64_t hash, const Same& same) const {
    size_t at = (hash >> 32) * slots_.size() >> 32;
    while (slots_[at].number != 0 && (slots_[at].hash != static_cast<uint32_t>(hash) ||
                                      !same(static_cast<int32_t>(slots_[at].number - 1))))
      if (++at == slots_.size()) at = 0;
    return at;
  }

  std::vector<Slot> slots_;
};

uint64_t hash_of(std::string_view text);

// The index of a list of texts.
class TextIndex {
 public:
  explicit TextIndex(size_t most) : index_(most) {}

  template <class List>
  void put(const List& texts, int32_t number) {
    const std::string_view text = texts[number];
    index_.put(hash_of(text), number, [&](int32_t other) { return texts[other] == text; });
  }
  template <class List>
  int32_t find(const List& texts, std::string_view text) const {
    return index_.find(hash_of(text), [&](int32_t number) { return texts[number] == text; });
  }

 private:
  HashIndex index_;
};

}  // namespace chaski
