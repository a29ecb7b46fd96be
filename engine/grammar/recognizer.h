// Reads a text byte by byte and knows after each byte whether the grammar allows the text so far. A
// text can be read in several ways. A way is a state of the automaton and a stack of the states
// where calling rules continue. Stacks share their lower ends, and equal stacks are stored once.
// Equal sets of ways are one Place. The transition from a place by a byte is computed once and then
// looked up.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "engine/grammar/rules.h"

namespace chaski {

class Recognizer {
 public:
  using Place = int32_t;
  static constexpr Place kNowhere = -1;

  // `rules` are finished, and outlive the recognizer.
  explicit Recognizer(const Rules& rules);

  Place start();
  // The place after a byte; kNowhere if the grammar does not allow the byte. Throws an Error if the
  // text up to here can be parsed in too many ways, or if the work exceeds its limit.
  Place step(Place place, uint8_t byte) {
    const Place next = row(place)[byte];
    return next != kUnknown ? next : compute(place, byte);
  }
  // The place after each byte; kUnknown if it is not computed yet. Its address is valid until
  // clear().
  using Row = std::array<Place, 256>;
  static constexpr Place kUnknown = -2;
  const Row& row(Place place) {
    const Known& known = places_[size_t(place)];
    return known.row ? *known.row : new_row(place);
  }
  Place read(Place place, std::string_view bytes) {
    for (size_t i = 0; i < bytes.size() && place != kNowhere; ++i)
      place = step(place, uint8_t(bytes[i]));
    return place;
  }
  // The token edges at a place, as indices of Rules::literals().
  std::vector<int32_t> literals(Place place) const;
  // The place after a token that `matches` some literals, and whose bytes lead to `by_bytes`.
  template <class Matches>
  Place after_token(Place place, Place by_bytes, const Matches& matches) {
    for (const Way way : *places_[size_t(place)].ways)
      for (const Rules::TokenEdge& e : rules_.tokens(Rules::State(way >> 32)))
        if (matches(e.literal)) add(e.to, uint32_t(way));
    if (seen_list_.empty()) return by_bytes;
    if (by_bytes == kNowhere) return close();
    for (const Way way : *places_[size_t(by_bytes)].ways)
      add(Rules::State(way >> 32), uint32_t(way));
    return close(may_end(by_bytes));
  }
  bool may_end(Place place) const { return places_[size_t(place)].ends; }
  // Whether the last byte opened a list whose items are all different.
  bool opens_distinct(Place place) const { return places_[size_t(place)].opens_distinct; }
  bool goes_on(Place place) const { return !places_[size_t(place)].ways->empty(); }
  // The only byte that may follow; -1 if there are several, or if the text may end here.
  int only_byte(Place place);

  // Starts to count work anew: each question to the grammar has the same limit.
  void allow_work() { work_ = 0; }
  bool is_full() const;  // whether it should be cleared
  void clear();          // removes all places

 private:
  using Way = uint64_t;  // the state in the high 32 bits, the stack in the low ones
  struct Known {
    const std::vector<Way>* ways;
    bool ends;
    Row* row;
    int16_t only;
    bool opens_distinct;
  };
  struct Stack {
    Rules::State back;  // where the calling rule continues
    uint32_t below;
  };
  struct Hash {
    size_t operator()(const std::vector<Way>& ways) const;
  };
  static constexpr int16_t kNotComputed = -2;

  Row& new_row(Place place);
  Place compute(Place place, uint8_t byte);
  void add(Rules::State state, uint32_t stack);
  void clear_seen();
  uint32_t push(Rules::State back, uint32_t below);
  Place close(bool ends = false);

  const Rules& rules_;
  std::vector<Known> places_;
  std::deque<Row> rows_;
  // Places by the ways that read a byte, and by whether the text may end.
  std::unordered_map<std::vector<Way>, std::array<Place, 2>, Hash> by_ways_;
  std::vector<Stack> stacks_;  // 0: empty
  std::unordered_map<uint64_t, uint32_t> by_stack_;
  uint64_t work_ = 0;
  size_t known_ways_ = 0;  // in all places
  Place start_ = kUnknown;
  // Used while a place is computed:
  std::vector<Way> seen_list_, reading_;
  std::vector<uint32_t> seen_;  // a hash table of indices into seen_list_, plus one; 0: free
  bool ends_ = false;
};

}  // namespace chaski
