#include "engine/grammar/json_parts.h"

#include <algorithm>
#include <map>

#include "engine/text/utf8.h"

namespace chaski {

namespace {

// A double cannot hold more digits: a reader would get another number.
constexpr int64_t kMostNumber = 999'999'999'999'999;
// Digits of a fraction. Between bounds there are fewer, so that no fraction rounds to a bound.
constexpr int kMostFraction = 15, kMostBoundedFraction = 6;
// multipleOf: up to kMostStep an automaton counts remainders. For a larger step, up to kMostListed
// multiples are listed.
constexpr int64_t kMostStep = 100, kMostListed = 1000;
// Characters of indentation of a line at most.
constexpr int kMostIndent = 24;

// Bounds of whole numbers.
struct Limits {
  int64_t low, high;
};
Limits limits_of(std::optional<int64_t> least, std::optional<int64_t> most) {
  return {least ? *least : std::min(-kMostNumber, most.value_or(0)),
          most ? *most : std::max(kMostNumber, least.value_or(0))};
}
uint64_t size_of(int64_t x) { return x < 0 ? ~uint64_t(x) + 1 : uint64_t(x); }

// The smallest and the largest multiple of `of` within the limits, divided by `of`.
Limits factors_of(int64_t of, const Limits& limits) {
  const auto below = [&](int64_t x) { return x / of - (x % of < 0); };
  return {-below(-limits.low), below(limits.high)};
}

// An automaton over decimal digits. Its states hold the remainder of the digits read so far,
// divided by `of`.
class Multiples {
 public:
  Multiples(Rules& rules, int64_t of) : rules_(rules), of_(of), end_(rules.state()) {}
  Rules::State end() const { return end_; }

  // Adds the multiples from `least` to `most`, read from state `from` on.
  void add(Rules::State from, uint64_t least, uint64_t most) {
    while (least <= most) {
      low_ = std::to_string(least);
      const uint64_t last = std::min<uint64_t>(most, std::stoull(std::string(low_.size(), '9')));
      high_ = std::to_string(last);
      if (const auto first = at(0, 0, true, true)) rules_.skip(from, *first);
      if (last == most) break;
      least = last + 1;
    }
  }

 private:
  // The state after `digits` digits. `on_low` and `on_high` say whether they equal the beginning of
  // the limit.
  std::optional<Rules::State> at(size_t digits, int64_t rest, bool on_low, bool on_high) {
    const size_t left = low_.size() - digits;
    if (left == 0) return rest == 0 ? std::optional(end_) : std::nullopt;
    const bool free = !on_low && !on_high;
    if (const auto known = known_.find({left, rest}); free && known != known_.end())
      return known->second;
    const Rules::State here = rules_.state();
    if (free) known_[{left, rest}] = here;
    std::map<Rules::State, CodeSet> next;
    const char first = on_low ? low_[digits] : '0', last = on_high ? high_[digits] : '9';
    for (char d = first; d <= last; ++d)
      if (const auto then = at(digits + 1, (rest * 10 + d - '0') % of_, on_low && d == first,
                               on_high && d == last))
        next[*then].add(uint32_t(d), uint32_t(d));
    for (const auto& [then, set] : next) {
      const Rules::Part digit = rules_.one_of(set);
      rules_.skip(here, digit.begin), rules_.skip(digit.end, then);
    }
    return here;
  }

  Rules& rules_;
  const int64_t of_;
  const Rules::State end_;
  std::string low_, high_;
  std::map<std::pair<size_t, int64_t>, Rules::State> known_;  // by digits left, and remainder
};

// Characters that a JSON string holds without a backslash.
const CodeSet& plain() {
  static const CodeSet set = [] {
    CodeSet escaped = CodeSet::of("\"\\");
    escaped.add(0, 0x1F);
    return escaped.others();
  }();
  return set;
}

const CodeSet& decimal() {
  static const CodeSet set{{'0', '9'}};
  return set;
}

}  // namespace

JsonParts::JsonParts(Rules& rules)
    : rules_(rules),
      space_(rules.declare("space")),
      character_(rules.declare("character")),
      string_(rules.declare("string")),
      value_(rules.declare("value")),
      object_(rules.declare("object")),
      array_(rules.declare("array")),
      digit_(rules.declare("digit")) {
  const auto both = [&](Rules::Part a, Rules::Part b) { return rules.chain(a, b); };
  const Rules::Part indent = rules.repeated(rules.one_of(CodeSet::of(" \t")), 0, kMostIndent);
  const Rules::Part spaces[] = {rules.nothing(), rules.text(" "), both(rules.text("\n"), indent)};
  rules.define(space_, rules.either(spaces));
  rules.define(digit_, rules.one_of(decimal()));

  const CodeSet hex{{'0', '9'}, {'A', 'F'}, {'a', 'f'}},
      not_d{{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
  // \u with a surrogate is not a character, so D is followed by 0 to 7.
  const Rules::Part code[] = {
      both(rules.one_of(not_d), rules.one_of(hex)),
      both(rules.one_of(CodeSet::of("dD")), rules.one_of(CodeSet{{'0', '7'}}))};
  const Rules::Part escapes[] = {
      rules.one_of(CodeSet::of("\"\\/bfnrt")),
      both(rules.text("u"), both(rules.either(code), both(rules.one_of(hex), rules.one_of(hex))))};
  const Rules::Part characters[] = {rules.one_of(plain()),
                                    both(rules.text("\\"), rules.either(escapes))};
  rules.define(character_, rules.either(characters));
  rules.define(string_, quoted(rules.repeated(rules.call(character_), 0, Rules::kUnlimited)));
  define_value();
}

Rules::Part JsonParts::comma() { return rules_.chain(rules_.text(","), space()); }

void JsonParts::define_value() {
  Rules& r = rules_;
  const auto listed = [&](std::string_view open, auto item, std::string_view close) {
    const Rules::Part more = r.repeated(r.chain(comma(), item()), 0, Rules::kUnlimited);
    const Rules::Part items = r.chain(r.chain(item(), more), space());
    const Rules::Part inside = r.repeated(items, 0, 1);
    return r.chain(r.chain(r.text(open), space()), r.chain(inside, r.text(close)));
  };
  const auto member = [&] {
    return r.chain(r.chain(any_string(), r.text(":")), r.chain(space(), any_value()));
  };
  r.define(object_, listed("{", member, "}"));
  r.define(array_, listed(
                       "[", [&] { return any_value(); }, "]"));
  const Rules::Part values[] = {any_object(),   r.call(array_),  any_string(),  number({}),
                                r.text("true"), r.text("false"), r.text("null")};
  r.define(value_, r.either(values));
}

Rules::Part JsonParts::character(const CodeSet& set) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  std::vector<Rules::Part> parts = {rules_.one_of(set.both(plain()))};
  for (uint32_t c = 0; c <= '\\'; ++c) {
    if (plain().has(c) || !set.has(c)) continue;
    const size_t known = kShort.find(char(c));
    parts.push_back(rules_.text(known < kShort.size() ? fmt::format("\\{}", kNames[known])
                                                      : fmt::format("\\u{:04x}", c)));
  }
  return parts.size() == 1 ? parts[0] : rules_.either(parts);
}

Rules::Part JsonParts::quoted(Rules::Part inside) {
  return rules_.chain(rules_.chain(rules_.text("\""), inside), rules_.text("\""));
}

Rules::Part JsonParts::string(int least, int most) {
  return quoted(rules_.repeated(rules_.call(character_), least, most));
}

// A trie of the names. After a character that leaves the trie, any characters may follow. The
// string may end at each node where no name ends.
Rules::Part JsonParts::name_except(const std::vector<std::string>& names) {
  struct Node {
    std::map<uint32_t, size_t> next;
    bool ends = false;
  };
  std::vector<Node> nodes(1);
  for (const std::string& name : names) {
    size_t at = 0;
    for (std::string_view rest = name; !rest.empty();) {
      const auto size = size_t(read_utf8(rest).size);
      const auto [next, fresh] =
          nodes[at].next.try_emplace(code_of(rest.substr(0, size)), nodes.size());
      at = next->second;
      if (fresh) nodes.emplace_back();
      rest.remove_prefix(size);
    }
    nodes[at].ends = true;
  }
  std::vector<Rules::State> states;
  for (size_t i = 0; i < nodes.size(); ++i) states.push_back(rules_.state());
  const Rules::Part free = rules_.repeated(rules_.one_of(plain()), 0, Rules::kUnlimited);
  const Rules::State end = rules_.state();
  rules_.skip(free.end, end);
  for (size_t i = 0; i < nodes.size(); ++i) {
    CodeSet taken;
    for (const auto& [code, next] : nodes[i].next) {
      const Rules::Part one = rules_.one_of(CodeSet{{code, code}}.both(plain()));
      rules_.skip(states[i], one.begin), rules_.skip(one.end, states[next]);
      taken.add(code, code);
    }
    const Rules::Part other = rules_.one_of(taken.others().both(plain()));
    rules_.skip(states[i], other.begin), rules_.skip(other.end, free.begin);
    if (!nodes[i].ends) rules_.skip(states[i], end);
  }
  return quoted({states[0], end});
}

// The numbers between two numbers with the same count of digits.
Rules::Part JsonParts::same_length(std::string_view least, std::string_view most) {
  if (least.empty()) return rules_.nothing();
  const size_t rest = least.size() - 1;
  const auto digit = [&](int first, int last) {
    return rules_.one_of(CodeSet{{uint32_t(first), uint32_t(last)}});
  };
  const bool all =
      least.find_first_not_of('0') == least.npos && most.find_first_not_of('9') == most.npos;
  if (all) return rules_.repeated(rules_.call(digit_), int(rest) + 1, int(rest) + 1);
  if (least[0] == most[0])
    return rules_.chain(digit(least[0], least[0]), same_length(least.substr(1), most.substr(1)));
  const std::string zeros(rest, '0'), nines(rest, '9');
  std::vector<Rules::Part> parts = {
      rules_.chain(digit(least[0], least[0]), same_length(least.substr(1), nines)),
      rules_.chain(digit(most[0], most[0]), same_length(zeros, most.substr(1)))};
  if (least[0] + 1 < most[0])
    parts.push_back(rules_.chain(digit(least[0] + 1, most[0] - 1), same_length(zeros, nines)));
  return rules_.either(parts);
}

// Decimal numbers without leading zeros.
Rules::Part JsonParts::digits(uint64_t least, uint64_t most) {
  std::vector<Rules::Part> parts;
  while (least <= most) {
    const std::string low = std::to_string(least);
    const uint64_t high = std::min<uint64_t>(most, std::stoull(std::string(low.size(), '9')));
    parts.push_back(same_length(low, std::to_string(high)));
    if (high == most) break;
    least = high + 1;
  }
  return rules_.either(parts);
}

Rules::Part JsonParts::integer(std::optional<int64_t> least, std::optional<int64_t> most) {
  const auto [low, high] = limits_of(least, most);
  std::vector<Rules::Part> parts;
  if (low < 0 && low <= high)
    parts.push_back(
        rules_.chain(rules_.text("-"), digits(high < 0 ? size_of(high) : 1, size_of(low))));
  if (high >= 0 && low <= high)
    parts.push_back(digits(size_of(std::max<int64_t>(low, 0)), size_of(high)));
  return rules_.either(parts);
}

bool JsonParts::can_be_multiple(int64_t of, std::optional<int64_t> least,
                                std::optional<int64_t> most) {
  const Limits factors = factors_of(of, limits_of(least, most));
  return of <= kMostStep || factors.high - factors.low < kMostListed;
}

Rules::Part JsonParts::multiple(int64_t of, std::optional<int64_t> least,
                                std::optional<int64_t> most) {
  if (of == 1) return integer(least, most);
  const Limits limits = limits_of(least, most), factors = factors_of(of, limits);
  if (factors.high - factors.low < kMostListed) {
    std::vector<Rules::Part> parts;
    for (int64_t i = factors.low; i <= factors.high; ++i)
      parts.push_back(rules_.text(std::to_string(i * of)));
    return rules_.either(parts);
  }
  Multiples multiples(rules_, of);
  const Rules::State begin = rules_.state();
  if (limits.low < 0) {
    const Rules::Part minus = rules_.text("-");
    rules_.skip(begin, minus.begin);
    multiples.add(minus.end, limits.high < 0 ? size_of(limits.high) : 1, size_of(limits.low));
  }
  if (limits.high >= 0)
    multiples.add(begin, size_of(std::max<int64_t>(limits.low, 0)), size_of(limits.high));
  return {begin, multiples.end()};
}

// Whole numbers, and numbers with a fraction between the bounds. A fraction does not end with 0, so
// a number with a fraction never equals a bound.
Rules::Part JsonParts::number(const Bounds& bounds) {
  const auto fraction = [&] {
    const int most = bounds.least || bounds.most ? kMostBoundedFraction : kMostFraction;
    const Rules::Part any = rules_.repeated(rules_.one_of(decimal()), 0, most - 1);
    return rules_.chain(rules_.text("."), rules_.chain(any, rules_.one_of(CodeSet{{'1', '9'}})));
  };
  const int64_t low = bounds.least.value_or(-kMostNumber), high = bounds.most.value_or(kMostNumber);
  std::vector<Rules::Part> parts = {
      integer(bounds.least_too ? bounds.least : low + 1, bounds.most_too ? bounds.most : high - 1)};
  if (const int64_t first = std::max<int64_t>(low, 0); first < high)
    parts.push_back(rules_.chain(digits(uint64_t(first), uint64_t(high - 1)), fraction()));
  if (const int64_t first = std::max<int64_t>(-high, 0); first < -low)
    parts.push_back(rules_.chain(
        rules_.text("-"), rules_.chain(digits(uint64_t(first), uint64_t(-low - 1)), fraction())));
  if (!bounds.least && !bounds.most) {
    const Rules::Part mantissa =
        rules_.chain(integer(std::nullopt, std::nullopt), rules_.repeated(fraction(), 0, 1));
    const Rules::Part sign = rules_.repeated(rules_.one_of(CodeSet::of("+-")), 0, 1);
    const Rules::Part exponent =
        rules_.chain(rules_.one_of(CodeSet::of("eE")),
                     rules_.chain(sign, rules_.repeated(rules_.one_of(decimal()), 1, 2)));
    parts.push_back(rules_.chain(mantissa, exponent));
  }
  return rules_.either(parts);
}

}  // namespace chaski
