#include "engine/grammar/schema/json_parts.h"

#include <map>

#include "engine/grammar/schema/decimal_range.h"
#include "engine/text/utf8.h"

namespace chaski {

namespace {

// Digits of a fraction of a number without bounds. A double holds them.
constexpr int kMostFraction = 15;
// The maximum indentation of a line, in characters.
constexpr int kMostIndent = 24;

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
      array_(rules.declare("array")) {
  const auto both = [&](Rules::Part a, Rules::Part b) { return rules.chain(a, b); };
  const Rules::Part indent = rules.repeated(rules.one_of(CodeSet::of(" \t")), 0, kMostIndent);
  const Rules::Part spaces[] = {rules.nothing(), rules.text(" "), both(rules.text("\n"), indent)};
  rules.define(space_, rules.either(spaces));

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
  const Rules::Part values[] = {any_object(),   r.call(array_),  any_string(),  number(),
                                r.text("true"), r.text("false"), r.text("null")};
  r.define(value_, r.either(values));
}

Rules::Part JsonParts::character(const CodeSet& set) {
  std::vector<Rules::Part> parts = {rules_.one_of(set.both(plain()))};
  for (uint32_t c = 0; c <= '\\'; ++c)
    if (!plain().has(c) && set.has(c)) parts.push_back(rules_.text(escape(uint8_t(c))));
  return parts.size() == 1 ? parts[0] : rules_.either(parts);
}

std::string JsonParts::escape(uint8_t byte) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  const size_t known = kShort.find(char(byte));
  if (known < kShort.size()) return fmt::format("\\{}", kNames[known]);
  return byte < 0x20 ? fmt::format("\\u{:04x}", byte) : std::string();
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

// A fraction does not end with 0.
Rules::Part JsonParts::number() {
  const auto integer = [&] { return DecimalRange{}.part(rules_); };
  const auto fraction = [&] {
    const Rules::Part any = rules_.repeated(rules_.one_of(decimal()), 0, kMostFraction - 1);
    return rules_.chain(rules_.text("."), rules_.chain(any, rules_.one_of(CodeSet{{'1', '9'}})));
  };
  const Rules::Part sign = rules_.repeated(rules_.one_of(CodeSet::of("+-")), 0, 1);
  const Rules::Part exponent =
      rules_.chain(rules_.one_of(CodeSet::of("eE")),
                   rules_.chain(sign, rules_.repeated(rules_.one_of(decimal()), 1, 2)));
  const Rules::Part minus_zero = rules_.chain(rules_.text("-0"), fraction());
  const Rules::Part mantissas[] = {rules_.chain(integer(), rules_.repeated(fraction(), 0, 1)),
                                   minus_zero};
  return rules_.chain(rules_.either(mantissas), rules_.repeated(exponent, 0, 1));
}

}  // namespace chaski
