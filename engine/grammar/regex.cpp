#include "engine/grammar/regex.h"

#include <utf8proc.h>

#include "engine/grammar/reader.h"

namespace chaski {

namespace {

const CodeSet& line_ends() {
  static const CodeSet set{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}

// The characters of a class. Engines disagree on spaces, digits and letters beyond ASCII: `sure`
// has those that match in every engine, `possible` those that match in some. A complement exchanges
// the two, so a text never depends on the engine that checks it.
struct CharClass {
  CodeSet sure, possible;

  static CharClass of(uint32_t code) { return {{{code, code}}, {{code, code}}}; }
  CharClass others() const { return {possible.others(), sure.others()}; }
  void add(const CharClass& more) { sure.add(more.sure), possible.add(more.possible); }
};

// Decimal digits of all scripts.
CodeSet some_digits() {
  CodeSet set;
  for (uint32_t c = 0x80; c <= 0x10FFFF; ++c) {
    const utf8proc_category_t category = utf8proc_category(int32_t(c));
    if (category == UTF8PROC_CATEGORY_ND) set.add(c, c);
  }
  return CodeSet(set.ranges());
}

// \d, \w, \s or their complements; nothing for another letter.
std::optional<CharClass> class_of(char letter) {
  static const CharClass digits = [] {
    CharClass d{{{'0', '9'}}, some_digits()};
    d.possible.add('0', '9');
    return d;
  }();
  static const CharClass word = [] {
    const CodeSet ascii{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    // Beyond ASCII, \w of some engines has letters, marks, numbers and connectors. No \w has these
    // ranges: punctuation, currencies, arrows, mathematics, drawings, emoji.
    CodeSet never{{0xA0, 0xA9},     {0xAB, 0xB1},     {0xB6, 0xB8},     {0xBB, 0xBB},
                  {0xBF, 0xBF},     {0xD7, 0xD7},     {0xF7, 0xF7},     {0x2010, 0x203E},
                  {0x2041, 0x2053}, {0x20A0, 0x20BF}, {0x2190, 0x23FF}, {0x2500, 0x2775},
                  {0x2794, 0x2B73}, {0x3001, 0x3004}, {0x3008, 0x3020}, {0x1F300, 0x1F64F}};
    never.add(CodeSet{{0, 0x7F}}.both(ascii.others()));
    return CharClass{ascii, never.others()};
  }();
  static const CharClass space{{{'\t', '\r'}, {' ', ' '}},
                               {{'\t', '\r'},
                                {0x1C, ' '},
                                {0x85, 0x85},
                                {0xA0, 0xA0},
                                {0x1680, 0x1680},
                                {0x180E, 0x180E},
                                {0x2000, 0x200A},
                                {0x2028, 0x2029},
                                {0x202F, 0x202F},
                                {0x205F, 0x205F},
                                {0x3000, 0x3000},
                                {0xFEFF, 0xFEFF}}};
  switch (letter) {
    case 'd':
      return digits;
    case 'w':
      return word;
    case 's':
      return space;
    case 'D':
      return digits.others();
    case 'W':
      return word.others();
    case 'S':
      return space.others();
  }
  return std::nullopt;
}

class RegexParser {
 public:
  RegexParser(Rules& rules, const GrammarSource& source, bool search,
              std::function<Rules::Part(const CodeSet&)> characters)
      : in_(source), rules_(rules), search_(search), characters_(std::move(characters)) {}

  Rules::Part parse() {
    const Rules::Part whole = alternatives(0);
    if (!in_.at_end()) in_.expected("the end, or an earlier '('");
    return whole;
  }

 private:
  Rules::Part anything() { return rules_.repeated(characters_(CodeSet::all()), 0, -1); }

  Rules::Part alternatives(int depth) {
    std::vector<Rules::Part> parts;
    do parts.push_back(depth == 0 ? outer_sequence() : sequence(depth));
    while (in_.take("|"));
    return parts.size() == 1 ? parts[0] : rules_.either(parts);
  }

  // Only here ^ and $ are allowed. Without them, a search allows any text before and after the
  // match.
  Rules::Part outer_sequence() {
    const bool from_begin = in_.take("^");
    Rules::Part part = sequence(0);
    const bool to_end = in_.take("$");
    if (search_ && !from_begin) part = rules_.chain(anything(), part);
    if (search_ && !to_end) part = rules_.chain(part, anything());
    return part;
  }

  Rules::Part sequence(int depth) {
    Rules::Part all = rules_.nothing();
    while (!in_.at_end() && in_.next() != '|' && in_.next() != ')') {
      if (in_.next() == '$' && depth == 0 && ends_after()) return all;
      Rules::Part part = item(depth);
      if (const auto times = in_.repeats()) {
        part = rules_.repeated(part, times->least, times->most);
        in_.take("?");
        if (in_.next() == '+' || in_.next() == '*') in_.expected("one repetition, not two");
      }
      all = rules_.chain(all, part);
    }
    return all;
  }

  bool ends_after() const {
    GrammarReader after = in_;
    after.take("$");
    return after.at_end() || after.next() == '|';
  }

  Rules::Part item(int depth) {
    const size_t at = in_.at();
    const char c = in_.next();
    if (in_.take("(")) {
      if (depth == kMostGroups)
        in_.wrong(at, fmt::format("groups are nested more than {} deep", kMostGroups));
      if (in_.take("?")) open_group(at);
      const Rules::Part part = alternatives(depth + 1);
      if (!in_.take(")")) in_.expected("')'");
      return part;
    }
    if (in_.take("[")) return characters_(characters());
    if (in_.take(".")) return characters_(line_ends().others());
    if (c == '^' || c == '$')
      in_.expected("^ at the beginning of the expression and $ at its end only");
    if (c == '*' || c == '+' || c == '?' || c == '{') in_.expected("an item before the repetition");
    return characters_(character(false).sure);
  }

  // Reads a group after "(?".
  void open_group(size_t at) {
    if (in_.take(":")) return;
    const size_t name = in_.at();
    if ((in_.take("P<") || in_.take("<")) && in_.next() != '=' && in_.next() != '!') {
      while (!in_.at_end() && in_.next() != '>') in_.character();
      if (!in_.take(">")) in_.expected("'>'");
      return;
    }
    in_.go_to(name);
    in_.wrong(at,
              "found a group that looks around or sets flags, expected (...), (?:...) or "
              "(?<name>...)");
  }

  // One character, or the set of \d and the like.
  CharClass character(bool in_class) {
    const size_t at = in_.at();
    if (!in_.take("\\")) return CharClass::of(in_.character());
    if (const auto set = class_of(in_.next())) {
      in_.character();
      return *set;
    }
    if (in_class && in_.take("b")) return CharClass::of('\b');
    if (const auto code = in_.escape()) return CharClass::of(*code);
    const char c = in_.next();
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      in_.wrong(
          at, fmt::format("found \\{}, expected \\d, \\w, \\s, \\D, \\W, \\S, \\n, \\r, \\t, "
                          "\\f, \\v, \\xHH, \\uHHHH or a punctuation character after the backslash",
                          c));
    return CharClass::of(in_.character());
  }

  CodeSet characters() {
    const bool others = in_.take("^");
    CharClass set;
    while (!in_.take("]")) {
      if (in_.at_end()) in_.expected("']'");
      const size_t at = in_.at();
      const CharClass first = character(true);
      if (!in_.sees("-") || in_.sees("-]")) {
        set.add(first);
        continue;
      }
      in_.take("-");
      const CharClass last = character(true);
      const auto a = first.possible.ranges(), b = last.possible.ranges();
      const auto one = [](const auto& r) { return r.size() == 1 && r[0].first == r[0].last; };
      if (!one(a) || !one(b) || b[0].first < a[0].first)
        in_.wrong(at, "a range that is not from a character to a later one");
      const CodeSet range{{a[0].first, b[0].first}};
      set.add({range, range});
    }
    return others ? set.possible.others() : set.sure;
  }

  GrammarReader in_;
  Rules& rules_;
  const bool search_;
  std::function<Rules::Part(const CodeSet&)> characters_;
};

}  // namespace

std::shared_ptr<const Rules> parse_regex(const GrammarSource& source) {
  auto rules = std::make_shared<Rules>(source);
  const Rules::Rule root = rules->declare("root");
  rules->define(root, RegexParser(*rules, source, false, [&](const CodeSet& set) {
                        return rules->one_of(set);
                      }).parse());
  rules->finish(root);
  return rules;
}

Rules::Part search_part(Rules& rules, const GrammarSource& source,
                        const std::function<Rules::Part(const CodeSet&)>& characters) {
  return RegexParser(rules, source, true, characters).parse();
}

}  // namespace chaski
