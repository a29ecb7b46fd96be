// The grammar of the template language, by recursive descent, as Jinja 3 has it.
#include <algorithm>
#include <initializer_list>

#include "engine/text/jinja/jinja_lexer.h"
#include "engine/text/jinja/jinja_nodes.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski::jinja {

namespace {

using Kind = Token::Kind;
using Words = std::initializer_list<std::string_view>;

constexpr int kMostNested = 100;   // brackets and blocks
constexpr int kMostInARow = 1000;  // operators, filters, subscripts of one expression

bool is_one_of(Words words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokens_of(source)) {}

  Body run() {
    Body out = body({});
    if (!is(Kind::end)) expected("a tag");
    return out;
  }

 private:
  struct Nested {
    explicit Nested(Parser& parser) : parser(parser) {
      if (++parser.nested_ > kMostNested)
        fault("line {}: brackets and blocks are nested {} deep, expected at most {}",
              parser.token().line, parser.nested_, kMostNested);
    }
    ~Nested() { --parser.nested_; }
    Parser& parser;
  };

  const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool is(Kind kind) const { return token().kind == kind; }
  bool is_sign(std::string_view sign, size_t ahead = 0) const {
    return token(ahead).kind == Kind::sign && token(ahead).word == sign;
  }
  bool is_word(std::string_view word, size_t ahead = 0) const {
    return token(ahead).kind == Kind::name && token(ahead).word == word;
  }
  bool skip_sign(std::string_view sign) { return is_sign(sign) && ++at_; }
  bool skip_word(std::string_view word) { return is_word(word) && ++at_; }
  [[noreturn]] void expected(std::string_view what) const {
    fault("line {}: {} stands where {} is expected", token().line, described(token()), what);
  }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) expected("\"" + std::string(sign) + "\"");
  }
  void expect(Kind kind) {
    if (!is(kind)) expected(described({kind, 0, {}, {}}));
    ++at_;
  }
  std::string expect_name() {
    if (!is(Kind::name)) expected("a name");
    return next().word;
  }

  template <class T>
  std::unique_ptr<T> make(int line) const {
    auto node = std::make_unique<T>();
    node->line = line;
    return node;
  }
  // A chain makes a tree as deep as it is long.
  void count(int& links) const {
    if (++links > kMostInARow)
      fault("line {}: an expression of more than {} operators", token().line, kMostInARow);
  }

  // Statements.

  // Up to a tag that begins with one of these words, which is next then.
  Body body(Words ends) {
    const Nested nested(*this);
    Body out;
    while (!is(Kind::end)) {
      const int line = token().line;
      if (is(Kind::data)) {
        auto node = make<Data>(line);
        node->text = next().text;
        out.push_back(std::move(node));
      } else if (is(Kind::print_begin)) {
        next();
        auto node = make<Print>(line);
        node->what = tuple();
        expect(Kind::print_end);
        out.push_back(std::move(node));
      } else {
        expect(Kind::block_begin);
        if (is(Kind::name) && is_one_of(ends, token().word)) return out;
        if (auto node = statement()) out.push_back(std::move(node));
      }
    }
    if (ends.size() > 0) expected("{% " + std::string(*(ends.end() - 1)) + " %}");
    return out;
  }
  // The inside of a block: behind its first tag, up to the end of its last.
  Body block(Words ends) {
    skip_sign(":");
    expect(Kind::block_end);
    return body(ends);
  }
  Body whole_block(std::string_view end) {
    Body out = block({end});
    next();
    expect(Kind::block_end);
    return out;
  }

  std::unique_ptr<Statement> statement() {
    const int line = token().line;
    if (!is(Kind::name)) expected("the name of a tag");
    const std::string tag = next().word;
    if (tag == "if") return if_block(line);
    if (tag == "for") return for_block(line);
    if (tag == "set") return set(line);
    if (tag == "macro") return macro(line);
    if (tag == "call") return call_block(line);
    if (tag == "filter") return filter_block(line);
    if (tag == "with") return with_block(line);
    if (tag == "generation") {  // marks what is trained on, and prints what is in it
      auto node = make<With>(line);
      node->body = whole_block("endgeneration");
      return node;
    }
    if (tag == "break" || tag == "continue") {
      auto node = make<Jump>(line);
      if (loops_ == 0) fault("line {}: {{% {} %}} stands outside of a loop", line, tag);
      node->flow = tag == "break" ? Flow::leave : Flow::again;
      expect(Kind::block_end);
      return node;
    }
    --at_;
    expected("a tag (for, if, set, macro, call, filter, with, generation, break, continue)");
  }

  std::unique_ptr<Statement> if_block(int line) {
    auto node = make<If>(line);
    Part test = tuple(false);
    for (;;) {
      Body inside = block({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(test), std::move(inside));
      const std::string tag = next().word;
      if (tag == "elif") {
        test = tuple(false);
        continue;
      }
      if (tag == "else")
        node->branches.emplace_back(nullptr, whole_block("endif"));
      else
        expect(Kind::block_end);
      return node;
    }
  }

  std::unique_ptr<Statement> for_block(int line) {
    auto node = make<For>(line);
    node->target = target(false);
    if (!skip_word("in")) expected("\"in\"");
    node->over = tuple(false, "recursive");
    if (skip_word("if")) node->test = expression();
    node->recursive = skip_word("recursive");
    ++loops_;
    node->body = block({"else", "endfor"});
    --loops_;
    if (next().word == "else")
      node->otherwise = whole_block("endfor");
    else
      expect(Kind::block_end);
    return node;
  }

  std::unique_ptr<Statement> set(int line) {
    Target to = target(true);
    if (skip_sign("=")) {
      auto node = make<Set>(line);
      node->target = std::move(to);
      node->value = tuple();
      expect(Kind::block_end);
      return node;
    }
    auto node = make<SetBlock>(line);
    node->target = std::move(to);
    if (is_sign("|")) node->filter = filters(nullptr);
    node->body = whole_block("endset");
    return node;
  }

  std::unique_ptr<Statement> macro(int line) {
    auto node = make<Macro>(line);
    node->name = expect_name();
    node->parameters = parameters();
    node->body = function_body("endmacro");
    return node;
  }

  std::unique_ptr<Statement> call_block(int line) {
    auto node = make<CallBlock>(line);
    node->caller.line = line;
    node->caller.name = "caller";
    if (is_sign("(")) node->caller.parameters = parameters();
    Part what = expression();
    if (!dynamic_cast<Call*>(what.get())) expected("a call");
    node->call.reset(static_cast<Call*>(what.release()));
    node->caller.body = function_body("endcall");
    return node;
  }

  // A loop around a macro is not left from inside of it.
  Body function_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body out = whole_block(end);
    loops_ = loops;
    return out;
  }

  std::unique_ptr<Statement> filter_block(int line) {
    auto node = make<FilterBlock>(line);
    node->filter = filter(nullptr);
    if (is_sign("|")) node->filter = filters(std::move(node->filter));
    node->body = whole_block("endfilter");
    return node;
  }

  std::unique_ptr<Statement> with_block(int line) {
    auto node = make<With>(line);
    while (!is(Kind::block_end)) {
      if (!node->names.empty()) expect_sign(",");
      Target to = target(false);
      expect_sign("=");
      node->names.emplace_back(std::move(to), expression());
    }
    node->body = whole_block("endwith");
    return node;
  }

  Parameters parameters() {
    Parameters out;
    expect_sign("(");
    while (!is_sign(")")) {
      if (!out.names.empty()) expect_sign(",");
      out.names.push_back(expect_name());
      if (skip_sign("="))
        out.defaults.push_back(expression());
      else if (!out.defaults.empty())
        expected("a default, as the parameter before has one,");
    }
    expect_sign(")");
    return out;
  }

  Target target(bool attributes) {
    Target first = one_target(attributes);
    if (!is_sign(",")) return first;
    Target all;
    all.several.push_back(std::move(first));
    while (skip_sign(","))
      if (is(Kind::name) || is_sign("(")) all.several.push_back(one_target(attributes));
    return all;
  }
  Target one_target(bool attributes) {
    const Nested nested(*this);
    if (skip_sign("(")) {
      Target inside = target(attributes);
      expect_sign(")");
      return inside;
    }
    const auto constants = {"true", "false", "none", "True", "False", "None"};
    if (is(Kind::name) &&
        std::find(constants.begin(), constants.end(), token().word) != constants.end())
      expected("a name to assign to");
    Target out;
    out.name = expect_name();
    if (attributes && skip_sign(".")) out.attribute = expect_name();
    return out;
  }

  // Expressions, from the loosest binding to the tightest.

  bool ends_tuple(std::string_view end_word) const {
    return is(Kind::print_end) || is(Kind::block_end) || is_sign(")") ||
           (!end_word.empty() && is_word(end_word));
  }

  Part tuple(bool with_choice = true, std::string_view end_word = "", bool may_be_empty = false) {
    const int line = token().line;
    Parts items;
    bool commas = false;
    while (!ends_tuple(end_word)) {
      items.push_back(with_choice ? expression() : logic(false));
      if (!skip_sign(",")) break;
      commas = true;
    }
    if (!commas && items.size() == 1) return std::move(items[0]);
    if (items.empty() && !may_be_empty) expected("an expression");
    auto node = make<ListOf>(line);
    node->kind = Sequence::tuple;
    node->items = std::move(items);
    return node;
  }

  Part expression() {
    const Nested nested(*this);
    int links = 0;
    Part out = logic(false);
    while (is_word("if")) {
      auto node = make<Choice>(next().line);
      node->yes = std::move(out);
      node->test = logic(false);
      if (skip_word("else")) node->no = expression();
      out = std::move(node);
      count(links);
    }
    return out;
  }

  Part logic(bool both) {
    int links = 0;
    Part out = both ? negation() : logic(true);
    while (is_word(both ? "and" : "or")) {
      auto node = make<Logic>(next().line);
      node->both = both;
      node->left = std::move(out);
      node->right = both ? negation() : logic(true);
      out = std::move(node);
      count(links);
    }
    return out;
  }

  Part negation() {
    if (!is_word("not")) return comparison();
    const Nested nested(*this);
    auto node = make<Not>(next().line);
    node->of = negation();
    return node;
  }

  std::string comparing() {
    if (is(Kind::sign) && is_one_of({"==", "!=", "<", "<=", ">", ">="}, token().word))
      return next().word;
    if (skip_word("in")) return "in";
    if (!is_word("not") || !is_word("in", 1)) return "";
    at_ += 2;
    return "not in";
  }

  Part comparison() {
    const int line = token().line;
    Part first = sum();
    std::string sign = comparing();
    if (sign.empty()) return first;
    auto node = make<Compare>(line);
    node->first = std::move(first);
    for (; !sign.empty(); sign = comparing()) node->others.emplace_back(sign, sum());
    return node;
  }

  // One level of operators that bind to the left.
  template <class Tighter>
  Part binary(Words signs, Tighter tighter) {
    int links = 0;
    Part out = tighter();
    while (is(Kind::sign) && is_one_of(signs, token().word)) {
      auto node = make<Binary>(token().line);
      node->sign = next().word;
      node->left = std::move(out);
      node->right = tighter();
      out = std::move(node);
      count(links);
    }
    return out;
  }
  Part sum() {
    return binary({"+", "-"}, [&] { return concat(); });
  }
  Part concat() {
    const int line = token().line;
    Part first = product();
    if (!is_sign("~")) return first;
    auto node = make<Concat>(line);
    node->parts.push_back(std::move(first));
    while (skip_sign("~")) node->parts.push_back(product());
    return node;
  }
  Part product() {
    return binary({"*", "/", "//", "%"}, [&] { return power(); });
  }
  Part power() {
    return binary({"**"}, [&] { return unary(true); });
  }

  Part unary(bool with_filters) {
    Part out;
    if (is_sign("-") || is_sign("+")) {
      const Nested nested(*this);
      auto node = make<Unary>(token().line);
      node->sign = next().word[0];
      node->of = unary(false);
      out = std::move(node);
    } else {
      out = primary();
    }
    out = subscripts(std::move(out));
    return with_filters ? filters(std::move(out)) : std::move(out);
  }

  Part constant(int line, Value value) {
    auto node = make<Constant>(line);
    node->value = std::move(value);
    return node;
  }

  Part primary() {
    const int line = token().line;
    if (is(Kind::name)) {
      const std::string word = next().word;
      if (word == "true" || word == "True") return constant(line, true);
      if (word == "false" || word == "False") return constant(line, false);
      if (word == "none" || word == "None") return constant(line, Value());
      auto node = make<Name>(line);
      node->name = word;
      return node;
    }
    if (is(Kind::text)) {
      Text text;
      while (is(Kind::text)) text += next().text;
      return constant(line, Value::text(constants_, std::move(text)));
    }
    if (is(Kind::integer)) return constant(line, next().integer);
    if (is(Kind::real)) return constant(line, next().real);
    if (skip_sign("(")) {
      const Nested nested(*this);
      Part inside = tuple(true, "", true);
      expect_sign(")");
      return inside;
    }
    if (skip_sign("[")) {
      auto node = make<ListOf>(line);
      while (!is_sign("]")) {
        node->items.push_back(expression());
        if (!skip_sign(",")) break;
      }
      expect_sign("]");
      return node;
    }
    if (!skip_sign("{")) expected("an expression");
    auto node = make<DictOf>(line);
    while (!is_sign("}")) {
      Part key = expression();
      expect_sign(":");
      node->items.emplace_back(std::move(key), expression());
      if (!skip_sign(",")) break;
    }
    expect_sign("}");
    return node;
  }

  Part subscripts(Part out) {
    for (int links = 0;; count(links)) {
      if (skip_sign("."))
        out = attribute(std::move(out));
      else if (skip_sign("["))
        out = subscript(std::move(out));
      else if (is_sign("("))
        out = call(std::move(out));
      else
        return out;
    }
  }

  Part attribute(Part of) {
    if (is(Kind::integer)) {
      auto node = make<Subscript>(token().line);
      node->of = std::move(of);
      node->at = constant(token().line, next().integer);
      return node;
    }
    auto node = make<Attribute>(token().line);
    node->of = std::move(of);
    node->name = expect_name();
    return node;
  }

  Part subscript(Part of) {
    const int line = token().line;
    Part bounds[3];
    int colons = 0;
    for (int i = 0; i < 3; ++i) {
      if (!is_sign(":") && !is_sign("]")) bounds[i] = expression();
      if (i == 2 || !skip_sign(":")) break;
      ++colons;
    }
    if (colons > 0) {
      auto node = make<Slice>(line);
      node->of = std::move(of);
      node->from = std::move(bounds[0]);
      node->to = std::move(bounds[1]);
      node->step = std::move(bounds[2]);
      expect_sign("]");
      return node;
    }
    if (!bounds[0]) expected("an expression");
    auto node = make<Subscript>(line);
    node->of = std::move(of);
    node->at = std::move(bounds[0]);
    expect_sign("]");
    return node;
  }

  Part call(Part what) {
    auto node = make<Call>(token().line);
    node->what = std::move(what);
    node->given = arguments();
    return node;
  }

  CallParts arguments() {
    CallParts out;
    expect_sign("(");
    while (!is_sign(")")) {
      if (skip_sign("*")) {
        out.star = expression();
      } else if (skip_sign("**")) {
        out.stars = expression();
      } else if (is(Kind::name) && is_sign("=", 1)) {
        std::string name = next().word;
        next();
        out.named.emplace_back(std::move(name), expression());
      } else {
        if (!out.named.empty()) expected("an argument with a name, as the one before has one,");
        out.positional.push_back(expression());
      }
      if (!skip_sign(",")) break;
    }
    expect_sign(")");
    return out;
  }

  // | name(...), is name ..., and calls of what they give.
  Part filters(Part out) {
    for (int links = 0;; count(links)) {
      if (skip_sign("|"))
        out = filter(std::move(out));
      else if (is_word("is") && out)
        out = test(std::move(out));
      else if (is_sign("(") && out)
        out = call(std::move(out));
      else
        return out;
    }
  }

  std::string dotted_name() {
    std::string out = expect_name();
    while (skip_sign(".")) out += "." + expect_name();
    return out;
  }

  Part filter(Part of) {
    auto node = make<Filter>(token().line);
    node->name = dotted_name();
    node->filter = find_filter(node->name);
    node->of = std::move(of);
    if (is_sign("(")) node->given = arguments();
    return node;
  }

  Part test(Part of) {
    auto node = make<Test>(next().line);
    const bool negated = skip_word("not");
    node->name = dotted_name();
    node->test = find_test(node->name);
    node->of = std::move(of);
    const bool one = is(Kind::text) || is(Kind::integer) || is(Kind::real) || is_sign("[") ||
                     is_sign("{") ||
                     (is(Kind::name) && !is_one_of({"else", "or", "and", "is"}, token().word));
    if (is_sign("("))
      node->given = arguments();
    else if (one && !(is_word("if") || is_word("not") || is_word("in")))
      node->given.positional.push_back(subscripts(primary()));
    if (!negated) return node;
    auto opposite = make<Not>(node->line);
    opposite->of = std::move(node);
    return opposite;
  }

  Budget constants_ = Budget::unlimited();
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nested_ = 0, loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace chaski::jinja
