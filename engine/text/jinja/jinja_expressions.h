// Parses the expressions of the template language, from the weakest to the strongest binding.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/jinja_lexer.h"
#include "engine/text/jinja/jinja_nodes.h"

namespace chaski::jinja {

// The tokens and the grammar of expressions; jinja_parser.cpp adds the statements.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view source) : tokens_(tokens_of(source)) {}

 protected:
  using Kind = Token::Kind;
  using Words = std::initializer_list<std::string_view>;

  static constexpr int kMostNested = 100;   // brackets and blocks
  static constexpr int kMostInARow = 1000;  // operators, filters, subscripts of one expression

  static bool is_one_of(Words words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  }

  struct Nested {
    explicit Nested(ExpressionParser& parser) : parser(parser) {
      if (++parser.nested_ > kMostNested)
        fault("line {}: brackets and blocks are nested {} deep, expected at most {}",
              parser.token().line, parser.nested_, kMostNested);
    }
    ~Nested() { --parser.nested_; }
    ExpressionParser& parser;
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
    fault("line {}: found {}, expected {}", token().line, described(token()), what);
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
  // A chain becomes a tree as deep as the chain is long.
  void count(int& links) const {
    if (++links > kMostInARow)
      fault("line {}: an expression of more than {} operators", token().line, kMostInARow);
  }

  Part tuple(bool with_choice = true, std::string_view end_word = "", bool may_be_empty = false);
  Part expression();
  CallParts arguments();
  // | name(...), is name ..., and calls of their results.
  Part filters(Part out);
  Part filter(Part of);

 private:
  bool ends_tuple(std::string_view end_word) const;
  Part logic(bool both);
  Part negation();
  std::string comparing();
  Part comparison();
  // One level of left-associative operators.
  template <class Tighter>
  Part binary(Words signs, Tighter tighter);
  Part sum();
  Part concat();
  Part product();
  Part power();
  Part unary(bool with_filters);
  Part constant(int line, Value value);
  Part primary();
  Part subscripts(Part out);
  Part attribute(Part of);
  Part subscript(Part of);
  Part call(Part what);
  std::string dotted_name();
  Part test(Part of);

  Budget constants_ = Budget::unlimited();
  const std::vector<Token> tokens_;
  int nested_ = 0;

 protected:
  size_t at_ = 0;  // index of the next token
};

}  // namespace chaski::jinja
