#include "engine/drafting/suffix_automaton.h"

#include <algorithm>
#include <functional>

namespace chaski {

void SuffixAutomaton::clear() {
  states_.assign(1, {0, -1, 0, {}});
  edges_.clear(), text_.clear(), last_ = 0;
}

int SuffixAutomaton::follow(int state, int32_t token) const {
  const auto edge = edges_.find(key(state, token));
  return edge == edges_.end() ? -1 : edge->second;
}

void SuffixAutomaton::connect(int from, int32_t token, int to) {
  const auto [edge, fresh] = edges_.insert_or_assign(key(from, token), to);
  if (fresh) states_[size_t(from)].next.push_back(token);
}

void SuffixAutomaton::push(int32_t token) {
  // The suffixes of the text now have their latest end here. Only the kSteps longest are updated.
  constexpr int kSteps = 32;
  int suffix = states_[size_t(last_)].link;
  for (int i = 0; i < kSteps && suffix > 0; ++i, suffix = states_[size_t(suffix)].link)
    states_[size_t(suffix)].end = text_.size();

  text_.push_back(token);
  const int now = int(states_.size());
  states_.push_back({states_[size_t(last_)].length + 1, 0, text_.size(), {}});
  int p = last_, q = -1;
  for (; p != -1 && (q = follow(p, token)) == -1; p = states_[size_t(p)].link)
    connect(p, token, now);
  last_ = now;
  if (p == -1) return;
  if (states_[size_t(p)].length + 1 == states_[size_t(q)].length) {
    states_[size_t(now)].link = q;
    return;
  }
  // The shorter substrings of q end here, too, but its longest does not: q is split.
  const int shorter = int(states_.size());
  State copy = states_[size_t(q)];
  copy.length = states_[size_t(p)].length + 1;
  const std::vector<int32_t> next = std::move(copy.next);
  copy.next.clear();
  states_.push_back(std::move(copy));
  for (const int32_t t : next) connect(shorter, t, follow(q, t));
  for (; p != -1 && follow(p, token) == q; p = states_[size_t(p)].link) connect(p, token, shorter);
  states_[size_t(q)].link = states_[size_t(now)].link = shorter;
}

SuffixAutomaton::Match SuffixAutomaton::longest_match() const {
  if (text_.empty()) return {};
  const State& s = states_[size_t(states_[size_t(last_)].link)];
  return {s.length, s.end};
}

std::vector<size_t> SuffixAutomaton::continuations(int most) const {
  // Tokens tried after a suffix: those that first followed it latest.
  constexpr size_t kLooked = 16;
  std::vector<size_t> out, places;
  if (text_.empty()) return out;
  for (int i = states_[size_t(last_)].link; i > 0 && int(out.size()) < most;
       i = states_[size_t(i)].link) {
    const State& s = states_[size_t(i)];
    places.assign(1, s.end);
    if (most > 1)
      for (size_t k = s.next.size() - std::min(s.next.size(), kLooked); k < s.next.size(); ++k)
        places.push_back(states_[size_t(follow(i, s.next[k]))].end - 1);
    std::sort(places.begin() + 1, places.end(), std::greater<>());
    for (const size_t place : places) {
      const auto same = [&](size_t other) { return text_[other] == text_[place]; };
      if (int(out.size()) < most && std::none_of(out.begin(), out.end(), same))
        out.push_back(place);
    }
  }
  return out;
}

}  // namespace chaski
