// Reads a text byte by byte and knows after each whether the grammar allows it so far. Where the
// text may stand is a set of ways: a state of the automaton, and the stack of states where rules go
// on that have called. Equal stacks are one (they share their lower ends), equal sets of ways are
// one Place, and where a byte leads from a place is worked out once: most of a text is looked up.
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

  // `rules` are finished, and outlive this.
  explicit Recognizer(const Rules& rules);

  Place start();
  // Where a byte leads; kNowhere if the grammar does not allow it there. Throws an Error if the
  // text may be read in too many ways at once, or if there was more work than allowed.
  Place step(Place place, uint8_t byte) {
    const Place next = row(place)[byte];
    return next != kUnknown ? next : work_out(place, byte);
  }
  // Where each byte leads from a place, as far as it was worked out: else kUnknown. Stays where it
  // is until places are forgotten.
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
  bool may_end(Place place) const { return places_[size_t(place)].ends; }
  bool goes_on(Place place) const { return !places_[size_t(place)].ways->empty(); }
  // The one byte that may follow, if the text cannot end here either; -1 if there is a choice.
  int only_byte(Place place);

  // Steps are counted: what one question to the grammar may cost.
  void allow_work() { work_ = 0; }
  // Forgets all places and what is known of them, when they have become many.
  bool is_full() const;
  void forget();

 private:
  using Way = uint64_t;  // the state, and below it the stack
  struct Known {
    const std::vector<Way>* ways;
    bool ends;
    Row* row;
    int16_t only;
  };
  struct Stack {
    Rules::State back;  // where the text goes on when the rule has ended
    uint32_t below;
  };
  struct Hash {
    size_t operator()(const std::vector<Way>& ways) const;
  };
  static constexpr int16_t kNotLooked = -2;

  Row& new_row(Place place);
  Place work_out(Place place, uint8_t byte);
  void add(Rules::State state, uint32_t stack);
  void forget_seen();
  uint32_t push(Rules::State back, uint32_t below);
  Place close();

  const Rules& rules_;
  std::vector<Known> places_;
  std::deque<Row> rows_;
  // The ways that read a byte, and whether the text may end.
  std::unordered_map<std::vector<Way>, std::array<Place, 2>, Hash> by_ways_;
  std::vector<Stack> stacks_;  // 0: empty
  std::unordered_map<uint64_t, uint32_t> by_stack_;
  uint64_t work_ = 0;
  size_t known_ways_ = 0;  // of all places
  Place start_ = kUnknown;
  // While a place is worked out:
  std::vector<Way> seen_list_, reading_;
  std::vector<uint32_t> seen_;  // a table of numbers in seen_list_, one more; 0: free
  bool ends_ = false;
};

}  // namespace chaski
