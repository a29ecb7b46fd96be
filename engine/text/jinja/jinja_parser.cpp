// The statements of the template language, by recursive descent, with the grammar of Jinja 3.
#include <algorithm>
#include <utility>

#include "engine/text/jinja/jinja_expressions.h"
#include "engine/text/jinja/jinja_nodes.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski::jinja {

namespace {

class Parser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() {
    Body out = body({});
    if (!is(Kind::end)) expected("a tag");
    return out;
  }

 private:
  // Reads up to a tag that begins with one of these words, which becomes the next token.
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
  // The content of a block: from the end of its first tag to the beginning of its last.
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
    if (tag == "generation") {  // marks training text; its content is printed
      auto node = make<With>(line);
      node->body = whole_block("endgeneration");
      return node;
    }
    if (tag == "break" || tag == "continue") {
      auto node = make<Jump>(line);
      if (loops_ == 0) fault("line {}: {{% {} %}} is outside of a loop", line, tag);
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

  // break and continue in a macro do not reach a loop around the macro.
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
        expected("a default value, like the parameter before,");
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

  int loops_ = 0;  // nesting depth
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace chaski::jinja
