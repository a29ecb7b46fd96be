#include "engine/grammar/recognizer.h"

#include <algorithm>

namespace chaski {

namespace {

// Ways at one place of the text; published grammars have fewer than a hundred.
constexpr size_t kMostWays = 1 << 15;
// Ways tried for one mask: about a second.
constexpr uint64_t kMostRecognizerSteps = 1 << 24;
constexpr size_t kMostPlaces = 1 << 16, kMostRows = 1 << 15, kMostStacks = 1 << 20;
constexpr size_t kMostKnownBytes = 64 << 20;  // memory of all ways

uint64_t mixed(uint64_t x) {
  x *= 0x9E3779B97F4A7C15;
  return x ^ x >> 29;
}

}  // namespace

size_t Recognizer::Hash::operator()(const std::vector<Way>& ways) const {
  uint64_t h = ways.size();
  for (const Way w : ways) h = mixed(h ^ w);
  return size_t(h);
}

Recognizer::Recognizer(const Rules& rules) : rules_(rules) { clear(); }

bool Recognizer::is_full() const {
  return places_.size() > kMostPlaces || rows_.size() > kMostRows || stacks_.size() > kMostStacks ||
         known_ways_ * sizeof(Way) > kMostKnownBytes;
}

void Recognizer::clear() {
  places_.clear(), rows_.clear(), by_ways_.clear(), by_stack_.clear();
  stacks_.assign(1, {});
  known_ways_ = 0;
  start_ = kUnknown;
}

Recognizer::Place Recognizer::start() {
  if (start_ == kUnknown) {
    add(rules_.begin(rules_.root()), 0);
    start_ = close();
  }
  return start_;
}

uint32_t Recognizer::push(Rules::State back, uint32_t below) {
  const uint64_t key = uint64_t(uint32_t(back)) << 32 | below;
  const auto [found, fresh] = by_stack_.try_emplace(key, uint32_t(stacks_.size()));
  if (fresh) stacks_.push_back({back, below});
  return found->second;
}

// Adds a way for close(), unless it was added before.
void Recognizer::add(Rules::State state, uint32_t stack) {
  if (++work_ > kMostRecognizerSteps) {
    clear_seen();
    fail(rules_.code(),
         "{}: the grammar is too ambiguous: one token needs more than {} steps, expected rules of "
         "which only one can match at a time",
         rules_.name(), kMostRecognizerSteps);
  }
  const Way way = uint64_t(uint32_t(state)) << 32 | stack;
  if (seen_list_.size() * 2 >= seen_.size()) {
    seen_.assign(std::max<size_t>(64, seen_.size() * 2), 0);
    for (size_t i = 0; i < seen_list_.size(); ++i) {
      size_t at = mixed(seen_list_[i]) & (seen_.size() - 1);
      while (seen_[at] != 0) at = (at + 1) & (seen_.size() - 1);
      seen_[at] = uint32_t(i) + 1;
    }
  }
  size_t at = mixed(way) & (seen_.size() - 1);
  for (; seen_[at] != 0; at = (at + 1) & (seen_.size() - 1))
    if (seen_list_[seen_[at] - 1] == way) return;
  if (seen_list_.size() == kMostWays) {
    clear_seen();
    fail(rules_.code(),
         "{}: the grammar is too ambiguous: one place of a text can be read in more than {} ways, "
         "expected rules of which one fits at a time",
         rules_.name(), kMostWays);
  }
  seen_list_.push_back(way);
  seen_[at] = uint32_t(seen_list_.size());
}

void Recognizer::clear_seen() {
  for (const Way way : seen_list_) {
    size_t at = mixed(way) & (seen_.size() - 1);
    while (seen_[at] != 0) seen_[at] = 0, at = (at + 1) & (seen_.size() - 1);
  }
  seen_list_.clear();
}

// The place of the ways that were added and of those that they lead to without reading a byte.
Recognizer::Place Recognizer::close(bool ends) {
  ends_ = ends;
  reading_.clear();
  bool distinct = false;
  for (size_t i = 0; i < seen_list_.size(); ++i) {
    const Way way = seen_list_[i];
    const auto state = Rules::State(way >> 32);
    const auto stack = uint32_t(way);
    distinct = distinct || (rules_.has_distinct() && rules_.is_distinct(state));
    if (!rules_.bytes(state).empty() || !rules_.tokens(state).empty()) reading_.push_back(way);
    for (const Rules::SkipEdge& e : rules_.skips(state)) add(e.to, stack);
    // If nothing follows a call, it need not be on the stack. So a list written as a rule that
    // calls itself at its end stays at one place.
    for (const Rules::CallEdge& e : rules_.calls(state))
      add(rules_.begin(e.rule), rules_.only_ends(e.to) ? stack : push(e.to, stack));
    if (!rules_.ends(state)) continue;
    if (stack == 0)
      ends_ = true;
    else
      add(stacks_[stack].back, stacks_[stack].below);
  }
  clear_seen();
  if (reading_.empty() && !ends_) return kNowhere;
  std::sort(reading_.begin(), reading_.end());
  const auto [known, fresh] = by_ways_.try_emplace(reading_, std::array{kNowhere, kNowhere});
  if (fresh) known_ways_ += reading_.size();
  Place& place = known->second[ends_ ? 1 : 0];
  if (place == kNowhere) {
    place = Place(places_.size());
    places_.push_back({&known->first, ends_, nullptr, kNotComputed, distinct});
  }
  return place;
}

Recognizer::Row& Recognizer::new_row(Place place) {
  Row& row = rows_.emplace_back();
  row.fill(kUnknown);
  return *(places_[size_t(place)].row = &row);
}

Recognizer::Place Recognizer::compute(Place place, uint8_t byte) {
  const std::vector<Way>& ways = *places_[size_t(place)].ways;
  work_ += ways.size();
  for (const Way way : ways)
    for (const Rules::ByteEdge& e : rules_.bytes(Rules::State(way >> 32)))
      if (e.low <= byte && byte <= e.high) add(e.to, uint32_t(way));
  const Place next = seen_list_.empty() ? kNowhere : close();
  return (*places_[size_t(place)].row)[byte] = next;
}

std::vector<int32_t> Recognizer::literals(Place place) const {
  std::vector<int32_t> all;
  for (const Way way : *places_[size_t(place)].ways)
    for (const Rules::TokenEdge& e : rules_.tokens(Rules::State(way >> 32)))
      if (std::find(all.begin(), all.end(), e.literal) == all.end()) all.push_back(e.literal);
  return all;
}

int Recognizer::only_byte(Place place) {
  if (places_[size_t(place)].only == kNotComputed) {
    // Rules::finish() removed the edges that cannot reach an end. So the ranges of the other edges
    // are the bytes that may follow.
    int low = 256, high = -1;
    work_ += places_[size_t(place)].ways->size();
    if (!may_end(place))
      for (const Way way : *places_[size_t(place)].ways) {
        const auto state = Rules::State(way >> 32);
        for (const Rules::ByteEdge& e : rules_.bytes(state))
          low = std::min<int>(low, e.low), high = std::max<int>(high, e.high);
        if (!rules_.tokens(state).empty()) low = -1, high = 256;  // not a byte alone
      }
    places_[size_t(place)].only = low == high ? int16_t(low) : int16_t(-1);
  }
  return places_[size_t(place)].only;
}

}  // namespace chaski
