// Values of the template language, as Python has them: what they are, how they compare, and how
// they are written. Texts, lists and dicts never change once they are made. What is made is paid
// for out of a Budget, so that a hostile template ends soon and small.
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

// What went wrong, without the place: whoever knows the line adds it.
struct Fault {
  std::string what;
};
template <class... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault{fmt::format(format, std::forward<Args>(args)...)};
}

// What a rendering may use: steps, about 50 ns each, and bytes, which are counted when they are
// taken and not when they are given back. Both throw Fault when there is no more.
class Budget {
 public:
  Budget(size_t steps, size_t bytes) : steps_(steps), bytes_(bytes) {}
  static Budget unlimited() { return {SIZE_MAX, SIZE_MAX}; }
  void spend(size_t steps);
  void take(size_t bytes);
  // For a text, of which no single one may be very long.
  void room(size_t characters) { room(characters, characters); }
  void room(size_t characters, size_t of_them_new);

 private:
  size_t steps_, bytes_;
};

class Value;
class Run;
using Values = std::vector<Value>;

// Of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What has attributes of its own or can be called: namespaces, loops, macros, functions, methods.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(std::string_view name) const;  // nothing: no such
  virtual bool callable() const { return false; }
  virtual int depth() const { return 0; }  // of the values that it keeps as they were
  virtual Value call(Run& run, Arguments given);
  virtual std::string shown() const = 0;  // as Python would print it, about
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
  // A key that comes again replaces the value of the first.
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

  // Only for what they are.
  const std::string& why_undefined() const { return *std::get<Undefined>(data_).what; }
  View text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<List>>(data_); }
  List& list() { return *std::get<std::shared_ptr<List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  int64_t whole() const;  // an integer, or a boolean as 0 or 1
  double real() const;    // any number

  bool truth() const;
  const char* type_name() const;  // as Python calls it
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
  bool used = false;  // a generator gives its items once
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth;
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(View key) const;
};

// Of what holds this value: one more than its own. Throws Fault where that is too much for whoever
// takes it apart.
int depth_around(const Value& inner);

// What a loop goes over: items, keys, characters; nothing if undefined. Throws Fault.
Values items_of(const Value& value, Budget& budget);
size_t length_of(const Value& value);

bool equal(const Value& a, const Value& b, Budget& budget);
// Throws Fault for what has no order.
bool less(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& all, const Value& one, Budget& budget);

// As Python's str() and repr().
void append_shown(Text& out, const Value& value, Budget& budget);
void append_repr(Text& out, const Value& value, Budget& budget);
Text shown(const Value& value, Budget& budget);
std::string shown(double value);

// As Python's json.dumps().
struct JsonStyle {
  bool ascii = false, sort = false;
  std::optional<Text> indent;
  Text item = U", ", key = U": ";
};
void append_json(Text& out, const Value& value, const JsonStyle& style, Budget& budget,
                 int level = 0);

// Appends within the budget.
void append(Text& out, View more, Budget& budget);
// Where `what` begins in `all`, from `from` on; npos if nowhere.
size_t find(View all, View what, size_t from, Budget& budget);

}  // namespace chaski::jinja
