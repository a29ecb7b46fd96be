#include "engine/grammar/gbnf.h"

#include <map>

#include "engine/grammar/reader.h"

namespace chaski {

namespace {

constexpr int32_t kMostTokens = 100'000'000;

bool names_rules(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  explicit GbnfParser(const GrammarSource& source)
      : source_(source), in_(source), rules_(std::make_shared<Rules>(source)) {}

  std::shared_ptr<const Rules> parse() {
    for (skip_blanks(true); !in_.at_end(); skip_blanks(true)) parse_rule();
    for (const auto& [name, known] : names_)
      if (!rules_->defined(known.rule))
        in_.wrong(known.first_at, fmt::format("rule {} is not defined, expected a line \"{} ::= "
                                              "...\"",
                                              name, name));
    const auto root = names_.find("root");
    if (root == names_.end())
      in_.wrong(source_.text.size(), "there is no rule root, expected a line \"root ::= ...\"");
    rules_->finish(root->second.rule);
    return rules_;
  }

 private:
  struct Known {
    Rules::Rule rule;
    size_t first_at;
  };

  void skip_blanks(bool lines) {
    for (;;) {
      const char c = in_.next();
      if (in_.at_end()) return;
      if (c == '#')
        while (!in_.at_end() && in_.next() != '\n') in_.go_to(in_.at() + 1);
      else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
        in_.go_to(in_.at() + 1);
      else
        return;
    }
  }

  std::string name() {
    std::string out;
    for (; names_rules(in_.next()); in_.go_to(in_.at() + 1)) out += in_.next();
    if (out.empty()) in_.expected("a rule's name");
    return out;
  }

  Rules::Rule rule(const std::string& name, size_t at) {
    const auto known = names_.find(name);
    if (known != names_.end()) return known->second.rule;
    return names_.emplace(name, Known{rules_->declare("rule " + name), at}).first->second.rule;
  }

  void parse_rule() {
    const size_t at = in_.at();
    const std::string left = name();
    skip_blanks(false);
    if (!in_.take("::=")) in_.expected("'::='");
    skip_blanks(true);
    const Rules::Rule rule = this->rule(left, at);
    if (rules_->defined(rule)) in_.wrong(at, fmt::format("rule {} is defined twice", left));
    rules_->locate(rule, source_.place(at));
    rules_->define(rule, alternatives(0));
    if (!in_.at_end() && in_.next() != '\n' && in_.next() != '\r')
      in_.expected("'|', the end of the line, or another item of the rule");
  }

  // In a group, line ends have no meaning. Outside a group, a rule continues on the next line if a
  // | ends this line or begins the next one.
  bool another_alternative(int depth) {
    const size_t before = in_.at();
    skip_blanks(true);
    if (in_.take("|")) {
      skip_blanks(true);
      return true;
    }
    if (depth == 0) in_.go_to(before);
    return false;
  }

  Rules::Part alternatives(int depth) {
    std::vector<Rules::Part> parts;
    do parts.push_back(sequence(depth));
    while (another_alternative(depth));
    return parts.size() == 1 ? parts[0] : rules_->either(parts);
  }

  Rules::Part sequence(int depth) {
    Rules::Part all = rules_->nothing();
    for (skip_blanks(depth > 0);; skip_blanks(depth > 0)) {
      const char c = in_.next();
      if (in_.at_end() || c == '|' || c == ')' || c == '\n' || c == '\r') return all;
      const size_t at = in_.at();
      Rules::Part part = item(depth);
      // A name before ::= begins the next rule, so something is missing between the two rules.
      skip_blanks(depth > 0);
      if (names_rules(c) && in_.sees("::="))
        in_.wrong(at, "found the next rule, expected the end of the line before it");
      while (const auto times = in_.repeats(true)) {
        part = rules_->repeated(part, times->least, times->most);
        skip_blanks(depth > 0);
      }
      all = rules_->chain(all, part);
    }
  }

  Rules::Part item(int depth) {
    const size_t at = in_.at();
    if (in_.take("\"")) {
      std::string text;
      while (!in_.take("\"")) text += utf8_of(literal("'\"' at the end of the text"));
      return rules_->text(text);
    }
    if (in_.take("[")) return rules_->one_of(characters());
    if (in_.take(".")) return rules_->one_of(CodeSet::all());
    if (in_.take("(")) {
      if (depth == kMostGroups)
        in_.wrong(at, fmt::format("groups are nested more than {} deep", kMostGroups));
      const Rules::Part part = alternatives(depth + 1);
      if (!in_.take(")")) in_.expected("')'");
      return part;
    }
    if (in_.sees("<") || in_.sees("!<")) return rules_->token(token());
    if (names_rules(in_.next())) return rules_->call(rule(name(), at));
    in_.expected("a text in quotes, [characters], ., <token>, (a group) or a rule's name");
  }

  // A token by its text or its id: <think>, <[151667]>; after a !, any token but this one.
  Rules::TokenLiteral token() {
    Rules::TokenLiteral literal;
    literal.place = source_.place(in_.at());
    literal.others = in_.take("!");
    const size_t begin = in_.at();
    if (in_.take("<[")) {
      const size_t digits = in_.at();
      literal.id = 0;
      for (; in_.next() >= '0' && in_.next() <= '9'; in_.go_to(in_.at() + 1)) {
        literal.id = literal.id * 10 + (in_.next() - '0');
        if (literal.id > kMostTokens) in_.wrong(digits, "the id of a token is too large");
      }
      if (in_.at() == digits) in_.expected("the id of a token");
      if (!in_.take("]>")) in_.expected("']>'");
      return literal;
    }
    while (!in_.at_end() && in_.next() != '>' && in_.next() != '\n') in_.character();
    if (!in_.take(">")) in_.expected("'>' after the text of a token");
    literal.text = source_.text.substr(begin, in_.at() - begin);
    return literal;
  }

  // A character, or an escape sequence.
  uint32_t literal(std::string_view end) {
    if (in_.at_end() || in_.next() == '\n') in_.expected(end);
    if (!in_.take("\\")) return in_.character();
    if (const auto code = in_.escape()) return *code;
    constexpr std::string_view kPlain = "\\\"'[]^-/.";
    if (in_.at_end() || kPlain.find(in_.next()) == kPlain.npos)
      in_.expected("\\n, \\r, \\t, \\\\, \\\", \\[, \\], \\xHH, \\uHHHH or \\UHHHHHHHH");
    return in_.character();
  }

  CodeSet characters() {
    const bool others = in_.take("^");
    CodeSet set;
    while (!in_.take("]")) {
      const size_t at = in_.at();
      const uint32_t first = literal("']'");
      uint32_t last = first;
      if (in_.sees("-") && !in_.sees("-]")) {
        in_.take("-");
        last = literal("']'");
      }
      if (last < first) in_.wrong(at, "a range that ends before it begins");
      set.add(first, last);
    }
    return others ? set.others() : set;
  }

  const GrammarSource& source_;
  GrammarReader in_;
  std::shared_ptr<Rules> rules_;
  std::map<std::string, Known> names_;
};

}  // namespace

std::shared_ptr<const Rules> parse_gbnf(const GrammarSource& source) {
  return GbnfParser(source).parse();
}

}  // namespace chaski
