// Finds the number of a thing by its hash: a table beside the list that has the things themselves,
// in 12 bytes for each. Grows never: how many there may be is said at first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chaski {

class HashIndex {
 public:
  explicit HashIndex(size_t most) : slots_(most + most / 2 + 1) {}

  // The number put under this hash for which same(number) holds; -1 if there is none.
  template <class Same>
  int32_t find(uint64_t hash, const Same& same) const {
    return static_cast<int32_t>(slots_[place(hash, same)].number) - 1;
  }
  // Of equal things the first one counts.
  template <class Same>
  void put(uint64_t hash, int32_t number, const Same& same) {
    Slot& slot = slots_[place(hash, same)];
    if (slot.number == 0) slot = {static_cast<uint32_t>(hash), static_cast<uint32_t>(number) + 1};
  }

 private:
  struct Slot {
    uint32_t hash = 0;    // the low half
    uint32_t number = 0;  // one more; 0: free
  };

  // Where the thing is, or the free slot where it would be.
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

// Of a list of texts.
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
