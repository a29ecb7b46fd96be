// A parsed template: expressions have a value, statements write text. jinja_nodes.cpp has the
// implementations.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/text/jinja/jinja_builtins.h"

namespace chaski::jinja {

struct Expression {
  int line = 0;
  virtual ~Expression() = default;
  virtual Value evaluate(Run& run) const = 0;
};
using Part = std::unique_ptr<Expression>;  // null if the part is omitted
using Parts = std::vector<Part>;

enum class Flow { on, leave, again };  // leave and again: {% break %} and {% continue %}

struct Statement {
  int line = 0;
  virtual ~Statement() = default;
  virtual Flow execute(Run& run, Text& out) const = 0;
};
using Body = std::vector<std::unique_ptr<Statement>>;

// The target of an assignment: a name, name.attribute of a namespace, or several of them.
struct Target {
  std::string name, attribute;
  std::vector<Target> several;
};

struct Parameters {
  std::vector<std::string> names;
  Parts defaults;  // of the last parameters
};

struct CallParts {
  Parts positional;
  std::vector<std::pair<std::string, Part>> named;
  Part star, stars;  // *list, **dict
};

struct Constant : Expression {
  Value value;
  Value evaluate(Run&) const override { return value; }
};
struct Name : Expression {
  std::string name;
  Value evaluate(Run& run) const override;
};
struct Attribute : Expression {
  Part of;
  std::string name;
  Value evaluate(Run& run) const override;
};
struct Subscript : Expression {
  Part of, at;
  Value evaluate(Run& run) const override;
};
struct Slice : Expression {
  Part of, from, to, step;
  Value evaluate(Run& run) const override;
};
struct Call : Expression {
  Part what;
  CallParts given;
  Value evaluate(Run& run) const override;
};
struct Filter : Expression {
  Part of;  // null: the text of a block
  std::string name;
  const Builtin* filter = nullptr;  // null: unknown; an error only when it is evaluated
  CallParts given;
  Value evaluate(Run& run) const override;
};
struct Test : Expression {
  Part of;
  std::string name;
  const Builtin* test = nullptr;  // null: unknown
  CallParts given;
  Value evaluate(Run& run) const override;
};
struct Unary : Expression {
  char sign = '-';
  Part of;
  Value evaluate(Run& run) const override;
};
struct Binary : Expression {
  std::string sign;
  Part left, right;
  Value evaluate(Run& run) const override;
};
struct Concat : Expression {  // ~
  Parts parts;
  Value evaluate(Run& run) const override;
};
struct Compare : Expression {  // a < b <= c
  Part first;
  std::vector<std::pair<std::string, Part>> others;
  Value evaluate(Run& run) const override;
};
struct Logic : Expression {
  bool both = false;  // true: and; false: or
  Part left, right;
  Value evaluate(Run& run) const override;
};
struct Not : Expression {
  Part of;
  Value evaluate(Run& run) const override;
};
struct Choice : Expression {  // yes if test else no
  Part test, yes, no;
  Value evaluate(Run& run) const override;
};
struct ListOf : Expression {
  Sequence kind = Sequence::list;
  Parts items;
  Value evaluate(Run& run) const override;
};
struct DictOf : Expression {
  std::vector<std::pair<Part, Part>> items;
  Value evaluate(Run& run) const override;
};

struct Data : Statement {
  Text text;
  Flow execute(Run& run, Text& out) const override;
};
struct Print : Statement {
  Part what;
  Flow execute(Run& run, Text& out) const override;
};
struct If : Statement {
  std::vector<std::pair<Part, Body>> branches;  // an else is the last branch, without a test
  Flow execute(Run& run, Text& out) const override;
};
struct For : Statement {
  Target target;
  Part over, test;
  bool recursive = false;
  Body body, otherwise;
  Flow execute(Run& run, Text& out) const override;
  void go_over(Run& run, const Value& all, int depth, Text& out) const;
};
struct Set : Statement {
  Target target;
  Part value;
  Flow execute(Run& run, Text& out) const override;
};
struct SetBlock : Statement {
  Target target;
  std::unique_ptr<Expression> filter;  // null, or filters; the first one is applied to the block
  Body body;
  Flow execute(Run& run, Text& out) const override;
};
struct FilterBlock : Statement {
  Part filter;
  Body body;
  Flow execute(Run& run, Text& out) const override;
};
struct Macro : Statement {
  std::string name;
  Parameters parameters;
  Body body;
  Flow execute(Run& run, Text& out) const override;
};
struct CallBlock : Statement {
  Macro caller;
  std::unique_ptr<Call> call;
  Flow execute(Run& run, Text& out) const override;
};
struct With : Statement {
  std::vector<std::pair<Target, Part>> names;
  Body body;
  Flow execute(Run& run, Text& out) const override;
};
struct Jump : Statement {
  Flow flow = Flow::leave;
  Flow execute(Run&, Text&) const override { return flow; }
};

// Throws Fault that names the line.
Body parse(std::string_view source);

}  // namespace chaski::jinja
