// For a text that grows token by token: the longest suffix that occurs earlier, and the tokens that
// followed it there. It is the suffix automaton of Blumer et al. 1985, built online; a token takes
// constant time on average.
#pragma once
#include <cstddef>
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

  // The longest suffix of the text that also occurs earlier. The two may overlap.
  struct Match {
    int length = 0;  // tokens
    size_t end = 0;  // the end of an earlier occurrence, usually the latest
  };
  Match longest_match() const;
  // Ends of earlier occurrences of suffixes of the text, at most `most`; no two are followed by the
  // same token. Occurrences of the longest suffix come first, then those of shorter ones; for one
  // suffix the latest come first. If many different tokens follow a suffix, only some of these
  // tokens are tried.
  std::vector<size_t> continuations(int most) const;

 private:
  // All substrings with the same set of end positions.
  struct State {
    int length;  // of the longest one
    int link;    // the state of its longest suffix with more end positions; -1 for the root
    size_t end;  // one of the end positions
    std::vector<int32_t> next;  // tokens that follow
  };
  int follow(int state, int32_t token) const;
  void connect(int from, int32_t token, int to);
  static uint64_t key(int state, int32_t token) { return uint64_t(state) << 32 | uint32_t(token); }

  std::vector<State> states_;
  std::unordered_map<uint64_t, int> edges_;
  std::vector<int32_t> text_;
  int last_ = 0;  // the state of the whole text
};

}  // namespace chaski
