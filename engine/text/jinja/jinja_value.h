// Values of the template language: Python's types, comparisons and text forms. Texts, lists and
// dicts are immutable. New values are paid for from a Budget, so that a hostile template ends early
// and takes little memory.
#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/jinja/jinja_text.h"

namespace chaski::jinja {

// An error without its position; a caller that knows the line adds it.
struct Fault {
  std::string what;
};
template <class... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault{fmt::format(format, std::forward<Args>(args)...)};
}

// The limits of a rendering: steps, about 50 ns each, and bytes, counted when they are allocated
// and never returned. Both functions throw Fault when the budget is used up.
class Budget {
 public:
  Budget(size_t steps, size_t bytes) : steps_(steps), bytes_(bytes) {}
  static Budget unlimited() { return {SIZE_MAX, SIZE_MAX}; }
  void spend(size_t steps);
  void take(size_t bytes);
  // For a new text, which also has a maximum length.
  void room(size_t characters) { room(characters, characters); }
  void room(size_t characters, size_t of_them_new);

 private:
  size_t steps_, bytes_;
};

class Value;
class Run;
using Values = std::vector<Value>;

// The arguments of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Anything callable or with attributes of its own: namespaces, loops, macros, functions, methods.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(
      std::string_view name) const;  // nothing: no such attribute
  virtual bool callable() const { return false; }
  virtual int depth() const { return 0; }  // nesting depth of the values it holds
  virtual Value call(Run& run, Arguments given);
  virtual std::string shown() const = 0;  // roughly like Python's print
};

struct Undefined {
  std::shared_ptr<const std::string> what;  // "message.content is not defined"
};
struct None {};

enum class Sequence { list, tuple, view, range, generator };
struct List;
struct Dict;

class Value {
 public:
  enum class Type { undefined, none, boolean, integer, real, text, list, dict, object };

  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  static Value undefined(std::string what);
  static Value text(Budget& budget, Text text);
  static Value text(Budget& budget, std::string_view utf8, char32_t mark = 0);
  static Value list(Budget& budget, Values items, Sequence kind = Sequence::list);
  // If a key occurs again, the entry keeps its first position and gets the new value.
  static Value dict(Budget& budget, std::vector<std::pair<Value, Value>> items);

  Type type() const { return Type(data_.index()); }
  bool is(Type t) const { return type() == t; }
  bool is_undefined() const { return is(Type::undefined); }
  bool is_none() const { return is(Type::none); }
  bool is_text() const { return is(Type::text); }
  bool is_list() const { return is(Type::list); }
  bool is_dict() const { return is(Type::dict); }
  bool is_number() const { return type() >= Type::boolean && type() <= Type::real; }
  bool is_whole() const { return is(Type::integer) || is(Type::boolean); }

  // The following need a value of that type.
  const std::string& why_undefined() const { return *std::get<Undefined>(data_).what; }
  View text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<List>>(data_); }
  List& list() { return *std::get<std::shared_ptr<List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  int64_t whole() const;  // an integer; a boolean is 0 or 1
  double real() const;    // any number

  bool truth() const;
  const char* type_name() const;  // Python's name
  bool same_object(const Value& other) const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<List>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

struct List {
  Sequence kind;
  Values items;
  int depth;
  bool used = false;  // a generator can be used once
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth;
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(View key) const;
};

// The depth of a list or dict that holds this value: one more than the value's. Throws Fault if it
// is so deep that destroying it could overflow the stack.
int depth_around(const Value& inner);

// The items that a loop visits: items, keys or characters; none if undefined. Throws Fault.
Values items_of(const Value& value, Budget& budget);
size_t length_of(const Value& value);

bool equal(const Value& a, const Value& b, Budget& budget);
// Throws Fault for values without an order.
bool less(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& all, const Value& one, Budget& budget);

// Python's str() and repr().
void append_shown(Text& out, const Value& value, Budget& budget);
void append_repr(Text& out, const Value& value, Budget& budget);
Text shown(const Value& value, Budget& budget);
std::string shown(double value);

// Python's json.dumps().
struct JsonStyle {
  bool ascii = false, sort = false;
  std::optional<Text> indent;
  Text item = U", ", key = U": ";
};
void append_json(Text& out, const Value& value, const JsonStyle& style, Budget& budget,
                 int level = 0);

// Appends and charges the budget.
void append(Text& out, View more, Budget& budget);
// The position of `what` in `all`, searched from `from` on; npos if there is none.
size_t find(View all, View what, size_t from, Budget& budget);

}  // namespace chaski::jinja
