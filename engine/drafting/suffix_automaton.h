// Of a text that grows by a token at a time: how much of its end it has seen before, and what came
// then. The suffix automaton of Blumer et al. 1985, built as the text comes; a token takes constant
// time on the average.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace chaski {

class SuffixAutomaton {
 public:
  SuffixAutomaton() { clear(); }
  void clear();
  void push(int32_t token);
  size_t size() const { return text_.size(); }
  const std::vector<int32_t>& text() const { return text_; }

  // The longest end of the text that stands in it earlier, too (it may overlap itself).
  struct Match {
    int length = 0;  // tokens
    size_t end = 0;  // behind one of its earlier places, as a rule the latest
  };
  Match longest_match() const;
  // Behind earlier places of ends of the text, each of which goes on with another token, so many at
  // most: first those of the longest end, then of shorter ones; of one end the latest first, but
  // for ends behind which there is much to choose from.
  std::vector<size_t> continuations(int most) const;

 private:
  // Substrings that end at the same places.
  struct State {
    int length;  // of the longest
    int link;    // state of its longest suffix that ends elsewhere too; -1: the root has none
    size_t end;  // behind one of the places
    std::vector<int32_t> next;  // tokens that follow
  };
  int follow(int state, int32_t token) const;
  void connect(int from, int32_t token, int to);
  static uint64_t key(int state, int32_t token) { return uint64_t(state) << 32 | uint32_t(token); }

  std::vector<State> states_;
  std::unordered_map<uint64_t, int> edges_;
  std::vector<int32_t> text_;
  int last_ = 0;  // state of the whole text
};

}  // namespace chaski
