#include "engine/grammar/rules.h"

#include <algorithm>
#include <array>

#include "engine/text/utf8.h"
#include "ggml-like-tensor/base/checksum.h"

namespace chaski {

namespace {

constexpr uint32_t kLastCode = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;
constexpr int32_t kMostStates = 1 << 18;

// The bytes of a code point, and their number.
std::pair<std::array<uint8_t, 4>, int> bytes_of(uint32_t c) {
  const auto tail = [&](int shift) { return uint8_t(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {{uint8_t(c)}, 1};
  if (c < 0x800) return {{uint8_t(0xC0 | c >> 6), tail(0)}, 2};
  if (c < 0x10000) return {{uint8_t(0xE0 | c >> 12), tail(6), tail(0)}, 3};
  return {{uint8_t(0xF0 | c >> 18), tail(12), tail(6), tail(0)}, 4};
}

// Splits the code points from `first` to `last` into ranges of UTF-8 sequences of n bytes, and
// calls f(low, high, n) with the bounds of each byte.
template <class F>
void each_byte_range(uint32_t first, uint32_t last, const F& f) {
  for (const uint32_t most : {0x7Fu, 0x7FFu, 0xFFFFu})
    if (first <= most && last > most) {
      each_byte_range(first, most, f);
      return each_byte_range(most + 1, last, f);
    }
  const auto [low, n] = bytes_of(first);
  const auto high = bytes_of(last).first;
  // If the bytes before the last i differ, the last i bytes must cover their whole range.
  for (int i = 1; i < n; ++i) {
    const uint32_t tail = (1u << 6 * i) - 1;
    if ((first & ~tail) == (last & ~tail)) continue;
    if ((first & tail) != 0) {
      each_byte_range(first, first | tail, f);
      return each_byte_range((first | tail) + 1, last, f);
    }
    if ((last & tail) != tail) {
      each_byte_range(first, (last & ~tail) - 1, f);
      return each_byte_range(last & ~tail, last, f);
    }
  }
  f(low, high, n);
}

}  // namespace

std::string GrammarSource::place(size_t at) const {
  const std::string_view before = std::string_view(text).substr(0, at);
  const size_t line = size_t(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t begin = before.rfind('\n');
  return fmt::format("line {}, column {}", line,
                     at - (begin == std::string_view::npos ? 0 : begin + 1) + 1);
}

void GrammarSource::wrong(size_t at, const std::string& what) const {
  fail(code, "{}: {}: {}", name, place(at), what);
}

void GrammarSource::expected(size_t at, std::string_view expected) const {
  const std::string found =
      at < text.size()
          ? fmt::format("'{}'", escaped(std::string_view(text).substr(
                                    at, size_t(read_utf8(std::string_view(text).substr(at)).size))))
          : "the end";
  wrong(at, fmt::format("found {}, expected {}", found, expected));
}

std::string utf8_of(uint32_t code) {
  const auto [bytes, n] = bytes_of(code);
  return {bytes.begin(), bytes.begin() + n};
}

uint32_t code_of(std::string_view character) {
  const auto size = int(character.size());
  uint32_t code = uint8_t(character[0]) & (size == 1 ? 0x7Fu : 0xFFu >> (size + 1));
  for (const char c : character.substr(1)) code = code << 6 | (uint8_t(c) & 0x3Fu);
  return code;
}

CodeSet CodeSet::of(std::string_view ascii) {
  CodeSet set;
  for (const char c : ascii) set.add(uint8_t(c), uint8_t(c));
  return set;
}

CodeSet CodeSet::all() { return {{0, kLastCode}}; }

void CodeSet::add(const CodeSet& more) {
  ranges_.insert(ranges_.end(), more.ranges_.begin(), more.ranges_.end());
}

std::vector<CodeSet::Range> CodeSet::ranges() const {
  std::vector<Range> cut;
  for (Range r : ranges_) {
    r.last = std::min(r.last, kLastCode);
    if (r.first < kFirstSurrogate && r.first <= r.last)
      cut.push_back({r.first, std::min(r.last, kFirstSurrogate - 1)});
    r.first = std::max(r.first, kLastSurrogate + 1);
    // A range that ends below the surrogates was added already.
    if (r.first <= r.last) cut.push_back(r);
  }
  std::sort(cut.begin(), cut.end(), [](Range a, Range b) { return a.first < b.first; });
  std::vector<Range> out;
  for (const Range& r : cut)
    if (!out.empty() && r.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, r.last);
    else
      out.push_back(r);
  return out;
}

CodeSet CodeSet::others() const {
  CodeSet out;
  uint32_t next = 0;
  for (const Range& r : ranges()) {
    if (r.first > next) out.add(next, r.first - 1);
    next = r.last + 1;
  }
  if (next <= kLastCode) out.add(next, kLastCode);
  return out;
}

CodeSet CodeSet::both(const CodeSet& other) const {
  CodeSet neither = others();
  neither.add(other.others());
  return neither.others();
}

bool CodeSet::has(uint32_t code) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](Range r) { return r.first <= code && code <= r.last; });
}

Rules::Rule Rules::declare(const std::string& name) {
  rules_.push_back({name, -1, -1, {}, {}});
  return Rule(rules_.size()) - 1;
}

void Rules::define(Rule rule, Part part) {
  rules_[size_t(rule)].begin = part.begin, rules_[size_t(rule)].end = part.end;
}

void Rules::fail_for_states() const {
  fail(code_, "{}: the grammar needs more than {} states, expected fewer or smaller repetitions",
       name_, kMostStates);
}

Rules::State Rules::state() {
  if (states_ == kMostStates) fail_for_states();
  return states_++;
}

Rules::Part Rules::nothing() {
  const State s = state();
  return {s, s};
}

Rules::Part Rules::text(std::string_view bytes) {
  const State begin = state();
  State end = begin;
  for (const char c : bytes) {
    const State next = state();
    bytes_.push_back({end, next, uint8_t(c), uint8_t(c)});
    end = next;
  }
  return {begin, end};
}

Rules::Part Rules::one_of(const CodeSet& codes) {
  const Part part{state(), state()};
  for (const CodeSet::Range& r : codes.ranges())
    each_byte_range(r.first, r.last, [&](const auto& low, const auto& high, int n) {
      State from = part.begin;
      for (int i = 0; i < n; ++i) {
        const State to = i + 1 < n ? state() : part.end;
        bytes_.push_back({from, to, low[size_t(i)], high[size_t(i)]});
        from = to;
      }
    });
  return part;
}

std::string Rules::TokenLiteral::shown() const {
  return escaped(fmt::format("{}{}", others ? "!" : "", id < 0 ? text : fmt::format("<[{}]>", id)));
}

Rules::Part Rules::token(TokenLiteral literal) {
  const Part part{state(), state()};
  tokens_.push_back({part.begin, part.end, int32_t(literals_.size())});
  literals_.push_back(std::move(literal));
  return part;
}

Rules::Part Rules::call(Rule rule) {
  const Part part{state(), state()};
  calls_.push_back({part.begin, part.end, rule});
  return part;
}

Rules::Rule Rules::copy(const Rules& other) {
  if (other.states_ > kMostStates - states_) fail_for_states();
  const State to = states_;
  const auto rule = Rule(rules_.size()), literal = int32_t(literals_.size());
  states_ += other.states_;
  for (Known known : other.rules_) {
    known.begin += to, known.end += to;
    rules_.push_back(std::move(known));
  }
  for (const ByteEdge& e : other.bytes_) bytes_.push_back({e.from + to, e.to + to, e.low, e.high});
  for (const SkipEdge& e : other.skips_) skips_.push_back({e.from + to, e.to + to});
  for (const TokenEdge& e : other.tokens_)
    tokens_.push_back({e.from + to, e.to + to, e.literal + literal});
  for (const CallEdge& e : other.calls_) calls_.push_back({e.from + to, e.to + to, e.rule + rule});
  literals_.insert(literals_.end(), other.literals_.begin(), other.literals_.end());
  for (State s = 0; s < State(other.distinct_.size()); ++s)
    if (other.is_distinct(s)) mark_distinct(s + to);
  return rule + other.root_;
}

Rules::Part Rules::chain(Part first, Part second) {
  skip(first.end, second.begin);
  return {first.begin, second.end};
}

Rules::Part Rules::either(std::span<const Part> parts) {
  const Part all{state(), state()};
  for (const Part& part : parts) skip(all.begin, part.begin), skip(part.end, all.end);
  return all;
}

Rules::Part Rules::repeated(Part part, int least, int most) {
  if (least == 1 && most == 1) return part;
  if (least <= 1 && (most == 1 || most == kUnlimited)) {
    const Part all{state(), state()};
    skip(all.begin, part.begin), skip(part.end, all.end);
    if (least == 0) skip(all.begin, all.end);
    if (most == kUnlimited) skip(part.end, part.begin);
    return all;
  }
  // A part can be inserted only once, so the repetition calls a rule several times.
  const Rule rule = declare("a repetition");
  define(rule, part);
  const State begin = state(), end = state();
  State at = begin;
  const auto more = [&] {
    const Part next = call(rule);
    skip(at, next.begin);
    at = next.end;
  };
  for (int i = 0; i < least; ++i) more();
  if (most == kUnlimited) {
    const Part again = repeated(call(rule), 0, kUnlimited);
    skip(at, again.begin), skip(again.end, end);
    return {begin, end};
  }
  for (int i = least; i < most; ++i) skip(at, end), more();
  skip(at, end);
  return {begin, end};
}

// The states from which the end of their rule can be reached; without `by_bytes`, without reading.
// Rules of `assumed`, and with Calls::free all rules that are called, are taken as rules that end.
std::vector<bool> Rules::can_end(bool by_bytes, Calls calls, std::span<const Rule> assumed) const {
  std::vector<std::vector<State>> before{size_t(states_)};
  std::vector<std::vector<Rule>> rules_at{size_t(states_)};
  std::vector<std::vector<CallEdge>> waiting(rules_.size());  // calls of rules that cannot end yet
  for (const SkipEdge& e : skips_) before[size_t(e.to)].push_back(e.from);
  if (by_bytes) {
    for (const ByteEdge& e : bytes_) before[size_t(e.to)].push_back(e.from);
    for (const TokenEdge& e : tokens_) before[size_t(e.to)].push_back(e.from);
  }
  for (const CallEdge& e : calls_)
    if (calls == Calls::free)
      before[size_t(e.to)].push_back(e.from);
    else
      waiting[size_t(e.rule)].push_back(e);
  std::vector<bool> can(size_t(states_), false), rule_can(rules_.size(), false);
  std::vector<State> next;
  const auto reach = [&](State s) {
    if (!can[size_t(s)]) can[size_t(s)] = true, next.push_back(s);
  };
  for (size_t r = 0; r < rules_.size(); ++r)
    rules_at[size_t(rules_[r].begin)].push_back(Rule(r)), reach(rules_[r].end);
  for (const Rule rule : assumed) reach(rules_[size_t(rule)].begin);
  std::vector<std::vector<CallEdge>> ready{size_t(states_)};
  while (!next.empty()) {
    const State s = next.back();
    next.pop_back();
    for (const State from : before[size_t(s)]) reach(from);
    for (const CallEdge& e : ready[size_t(s)]) reach(e.from);
    for (const Rule rule : rules_at[size_t(s)]) {
      if (rule_can[size_t(rule)]) continue;
      rule_can[size_t(rule)] = true;
      for (const CallEdge& e : waiting[size_t(rule)])
        can[size_t(e.to)] ? reach(e.from) : ready[size_t(e.to)].push_back(e);
    }
  }
  return can;
}

void Rules::wrong(Rule rule, const std::string& what) const {
  const std::string& place = rules_[size_t(rule)].place;
  fail(code_, "{}: {}{}{}", name_, place, place.empty() ? "" : ": ", what);
}

// Finds a cycle of rules that call each other before they read a byte.
void Rules::expect_no_left_recursion(const std::vector<bool>& empty) const {
  std::vector<std::vector<Rule>> first(rules_.size());
  std::vector<State> seen(size_t(states_), -1), next;
  for (size_t r = 0; r < rules_.size(); ++r) {
    const auto visit = [&](State s) {
      if (seen[size_t(s)] != State(r)) seen[size_t(s)] = State(r), next.push_back(s);
    };
    visit(rules_[r].begin);
    while (!next.empty()) {
      const State s = next.back();
      next.pop_back();
      for (const SkipEdge& e : skips(s)) visit(e.to);
      for (const CallEdge& e : calls(s)) {
        first[r].push_back(e.rule);
        if (empty[size_t(begin(e.rule))]) visit(e.to);
      }
    }
  }
  enum class Mark : uint8_t { unseen, open, done };
  std::vector<Mark> marks(rules_.size(), Mark::unseen);
  std::vector<std::pair<Rule, size_t>> path;
  for (size_t r = 0; r < rules_.size(); ++r) {
    if (marks[r] != Mark::unseen) continue;
    path.push_back({Rule(r), 0}), marks[r] = Mark::open;
    while (!path.empty()) {
      auto& [rule, i] = path.back();
      if (i == first[size_t(rule)].size()) {
        marks[size_t(rule)] = Mark::done;
        path.pop_back();
        continue;
      }
      const Rule callee = first[size_t(rule)][i++];
      if (marks[size_t(callee)] == Mark::open)
        wrong(callee,
              fmt::format("{} begins with itself before it reads anything (left recursion), "
                          "expected rules that read first: a list is item (\",\" item)*",
                          escaped(name_of(callee))));
      if (marks[size_t(callee)] == Mark::unseen)
        marks[size_t(callee)] = Mark::open, path.push_back({callee, 0});
    }
  }
}

// Of the rules that no text fits, whatever the rules that they call allow, the last one without
// which a text would fit the root. Nothing if each way is infinite.
std::optional<Rules::Rule> Rules::cause_of_no_text() const {
  const std::vector<bool> alive = can_end(true, Calls::free);
  std::vector<Rule> dead;
  for (size_t r = 0; r < rules_.size(); ++r)
    if (!alive[size_t(rules_[r].begin)]) dead.push_back(Rule(r));
  const auto enough = [&](size_t n) {
    const std::span<const Rule> first = std::span(dead).first(n);
    return bool(can_end(true, Calls::followed, first)[size_t(begin(root_))]);
  };
  if (dead.empty() || !enough(dead.size())) return std::nullopt;
  size_t least = 1;
  for (size_t most = dead.size(); least < most;) {
    const size_t middle = (least + most) / 2;
    enough(middle) ? most = middle : least = middle + 1;
  }
  return dead[least - 1];
}

void Rules::index_edges() {
  const auto sort = [&](auto& edges, std::vector<int32_t>& index) {
    std::stable_sort(edges.begin(), edges.end(),
                     [](const auto& a, const auto& b) { return a.from < b.from; });
    index.assign(size_t(states_) + 1, 0);
    for (const auto& e : edges) ++index[size_t(e.from) + 1];
    for (size_t i = 1; i < index.size(); ++i) index[i] += index[i - 1];
  };
  sort(bytes_, byte_index_), sort(skips_, skip_index_), sort(calls_, call_index_);
  sort(tokens_, token_index_);
}

void Rules::finish(Rule root) {
  root_ = root;
  for (const Known& rule : rules_) ENSURE(rule.begin >= 0, "every declared rule is defined");
  const std::vector<bool> alive = can_end(true);
  if (!alive[size_t(begin(root))]) {
    const std::optional<Rule> cause = cause_of_no_text();
    std::string why = "each way through it is infinite or allows nothing, expected one that ends";
    if (cause) {
      const Known& dead = rules_[size_t(*cause)];
      why = dead.why.empty() ? "it allows nothing" : dead.why;
      if (*cause != root) why = fmt::format("{}: {}", escaped(name_of(*cause)), why);
    }
    wrong(root, fmt::format("no text fits {}: {}", escaped(name_of(root)), why));
  }
  for (const Known& rule : rules_)
    if (!rule.why.empty() && !alive[size_t(rule.begin)])
      impossible_.push_back(fmt::format("{}: {}", escaped(rule.name), rule.why));
  const auto leads_nowhere = [&](const auto& e) { return !alive[size_t(e.to)]; };
  std::erase_if(bytes_, leads_nowhere), std::erase_if(skips_, leads_nowhere);
  std::erase_if(tokens_, leads_nowhere);
  std::erase_if(
      calls_, [&](const CallEdge& e) { return leads_nowhere(e) || !alive[size_t(begin(e.rule))]; });
  index_edges();
  expect_no_left_recursion(can_end(false));

  ends_.assign(size_t(states_), false);
  for (const Known& rule : rules_) ends_[size_t(rule.end)] = true;
  // States that have only skips, all of them to such states. Cycles of skips do not count.
  only_ends_.assign(size_t(states_), false);
  std::vector<State> next;
  std::vector<std::vector<State>> before{size_t(states_)};
  for (const SkipEdge& e : skips_) before[size_t(e.to)].push_back(e.from);
  const auto look = [&](State s) {
    if (only_ends_[size_t(s)] || !bytes(s).empty() || !calls(s).empty() || !tokens(s).empty())
      return;
    const auto to_end = [&](const SkipEdge& e) { return bool(only_ends_[size_t(e.to)]); };
    const auto on = skips(s);
    if (!std::all_of(on.begin(), on.end(), to_end) || (on.empty() && !ends(s))) return;
    only_ends_[size_t(s)] = true, next.push_back(s);
  };
  for (State s = 0; s < states_; ++s)
    if (ends(s)) look(s);
  while (!next.empty()) {
    const State s = next.back();
    next.pop_back();
    for (const State from : before[size_t(s)]) look(from);
  }
}

uint64_t Rules::sum() const {
  std::vector<int32_t> all = {states_, root_};
  for (const Known& rule : rules_) all.insert(all.end(), {rule.begin, rule.end});
  for (const ByteEdge& e : bytes_) all.insert(all.end(), {0, e.from, e.to, e.low, e.high});
  for (const SkipEdge& e : skips_) all.insert(all.end(), {1, e.from, e.to});
  for (const CallEdge& e : calls_) all.insert(all.end(), {2, e.from, e.to, e.rule});
  for (State s = 0; s < State(distinct_.size()); ++s)
    if (is_distinct(s)) all.insert(all.end(), {4, s});
  for (const TokenEdge& e : tokens_) {
    const TokenLiteral& l = literals_[size_t(e.literal)];
    all.insert(all.end(), {3, e.from, e.to, l.id, l.others});
    all.insert(all.end(), l.text.begin(), l.text.end());
  }
  return checksum(all.data(), all.size() * sizeof all[0]);
}

}  // namespace chaski
