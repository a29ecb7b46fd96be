// A text that fits several grammars and does not fit others, and whose length is limited, as one
// automaton. The grammars have no recursion, so each is a finite automaton over bytes.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/grammar/recognizer.h"
#include "engine/grammar/rules.h"

namespace chaski {

class TextProduct {
 public:
  TextProduct();
  // `rules` are finished.
  void add(std::shared_ptr<const Rules> rules, bool fits);
  void limit(int least, int most) { least_ = least, most_ = most; }  // in characters

  // The content of a JSON string, spelled in one way. Nothing if the automaton has more than
  // kMostStates states.
  static constexpr size_t kMostStates = 1 << 14;
  std::optional<Rules::Part> part(Rules& rules);
  size_t states() const { return states_; }  // of the last part()

 private:
  struct Member {
    std::shared_ptr<const Rules> rules;
    bool fits;
    Recognizer recognizer;
  };
  using Tuple = std::vector<Recognizer::Place>;  // a place of each member, and the length
  bool read(Tuple& at, uint8_t byte);
  bool may_end(const Tuple& at) const;
  std::vector<uint8_t> byte_classes() const;

  std::deque<Member> members_;
  size_t states_ = 0;
  int least_ = 0, most_ = Rules::kUnlimited;
};

}  // namespace chaski
