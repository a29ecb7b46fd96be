// The entries of a JSON object or list whose number is limited.
#pragma once
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/grammar/schema/json_parts.h"

namespace chaski {

// The states of a text between the brackets of an object or a list: entries in their order,
// separated by commas. There is a state for each number of entries so far; numbers above the last
// one that matters share a state.
class CountedEntries {
 public:
  CountedEntries(Rules& rules, JsonParts& parts, Rules::State open, int least, int most)
      : rules_(rules),
        parts_(parts),
        most_(most),
        counted_(most == Rules::kUnlimited ? std::max(least, 1) : most),
        at_{{0, open}} {}
  size_t ways() const { return at_.size(); }

  void add(Rules::Rule entry, bool optional) {
    std::map<int, Rules::State> next;
    for (const auto& [n, state] : at_) {
      if (optional) rules_.skip(state, of(next, n));
      take(entry, n, state, next);
    }
    at_ = std::move(next);
  }

  // Any number of further entries of one kind. Only one of them counts towards `least`.
  void add_others(Rules::Rule entry, int least) {
    std::map<int, Rules::State> others;
    for (const auto& [n, state] : at_)
      if (n + 1 >= least) take(entry, n, state, others);
    for (auto way = others.begin(); way != others.end(); ++way)
      take(entry, way->first, way->second, others);
    for (const auto& [n, state] : others) closing_.push_back({n, state});
  }

  // The state at the closing bracket.
  Rules::State close(int least) {
    const Rules::State close = rules_.state();
    for (const auto& [n, state] : at_)
      if (n >= least) closing_.push_back({n, state});
    for (const auto& [n, state] : closing_) {
      const Rules::Part space = n > 0 ? parts_.space() : rules_.nothing();
      rules_.skip(state, space.begin), rules_.skip(space.end, close);
    }
    return close;
  }

 private:
  Rules::State of(std::map<int, Rules::State>& states, int n) {
    const auto [at, fresh] = states.try_emplace(n);
    if (fresh) at->second = rules_.state();
    return at->second;
  }
  void take(Rules::Rule entry, int n, Rules::State from, std::map<int, Rules::State>& next) {
    if (n == most_) return;
    Rules::Part part = rules_.call(entry);
    if (n > 0) part = rules_.chain(parts_.comma(), part);
    rules_.skip(from, part.begin);
    rules_.skip(part.end, of(next, std::min(n + 1, counted_)));
  }

  Rules& rules_;
  JsonParts& parts_;
  const int most_, counted_;
  std::map<int, Rules::State> at_;
  std::vector<std::pair<int, Rules::State>> closing_;
};

}  // namespace chaski
