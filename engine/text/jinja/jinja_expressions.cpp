#include "engine/text/jinja/jinja_expressions.h"

namespace chaski::jinja {

bool ExpressionParser::ends_tuple(std::string_view end_word) const {
  return is(Kind::print_end) || is(Kind::block_end) || is_sign(")") ||
         (!end_word.empty() && is_word(end_word));
}

Part ExpressionParser::tuple(bool with_choice, std::string_view end_word, bool may_be_empty) {
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

Part ExpressionParser::expression() {
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

Part ExpressionParser::logic(bool both) {
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

Part ExpressionParser::negation() {
  if (!is_word("not")) return comparison();
  const Nested nested(*this);
  auto node = make<Not>(next().line);
  node->of = negation();
  return node;
}

std::string ExpressionParser::comparing() {
  if (is(Kind::sign) && is_one_of({"==", "!=", "<", "<=", ">", ">="}, token().word))
    return next().word;
  if (skip_word("in")) return "in";
  if (!is_word("not") || !is_word("in", 1)) return "";
  at_ += 2;
  return "not in";
}

Part ExpressionParser::comparison() {
  const int line = token().line;
  Part first = sum();
  std::string sign = comparing();
  if (sign.empty()) return first;
  auto node = make<Compare>(line);
  node->first = std::move(first);
  for (; !sign.empty(); sign = comparing()) node->others.emplace_back(sign, sum());
  return node;
}

template <class Tighter>
Part ExpressionParser::binary(Words signs, Tighter tighter) {
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

Part ExpressionParser::sum() {
  return binary({"+", "-"}, [&] { return concat(); });
}

Part ExpressionParser::concat() {
  const int line = token().line;
  Part first = product();
  if (!is_sign("~")) return first;
  auto node = make<Concat>(line);
  node->parts.push_back(std::move(first));
  while (skip_sign("~")) node->parts.push_back(product());
  return node;
}

Part ExpressionParser::product() {
  return binary({"*", "/", "//", "%"}, [&] { return power(); });
}

Part ExpressionParser::power() {
  return binary({"**"}, [&] { return unary(true); });
}

Part ExpressionParser::unary(bool with_filters) {
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

Part ExpressionParser::constant(int line, Value value) {
  auto node = make<Constant>(line);
  node->value = std::move(value);
  return node;
}

Part ExpressionParser::primary() {
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

Part ExpressionParser::subscripts(Part out) {
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

Part ExpressionParser::attribute(Part of) {
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

Part ExpressionParser::subscript(Part of) {
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

Part ExpressionParser::call(Part what) {
  auto node = make<Call>(token().line);
  node->what = std::move(what);
  node->given = arguments();
  return node;
}

CallParts ExpressionParser::arguments() {
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
      if (!out.named.empty()) expected("a named argument, like the one before,");
      out.positional.push_back(expression());
    }
    if (!skip_sign(",")) break;
  }
  expect_sign(")");
  return out;
}

Part ExpressionParser::filters(Part out) {
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

std::string ExpressionParser::dotted_name() {
  std::string out = expect_name();
  while (skip_sign(".")) out += "." + expect_name();
  return out;
}

Part ExpressionParser::filter(Part of) {
  auto node = make<Filter>(token().line);
  node->name = dotted_name();
  node->filter = find_filter(node->name);
  node->of = std::move(of);
  if (is_sign("(")) node->given = arguments();
  return node;
}

Part ExpressionParser::test(Part of) {
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

}  // namespace chaski::jinja
