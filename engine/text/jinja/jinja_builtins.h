// What the template language brings along: filters, tests, functions, and the methods of texts,
// lists and dicts. Each is a row of a table: its name, the names of its parameters, what it does.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "engine/text/jinja/jinja_value.h"

namespace chaski::jinja {

class Given;

struct Builtin {
  const char* name;
  const char* parameters;  // with spaces between; "*" takes whatever is given
  // `of` stands in front of the | or the dot, or is none.
  Value (*run)(Run& run, const Value& of, const Given& given);
};

// The arguments of one call, by the places of the parameters. Throws Fault for one too many, one
// that is unknown, or one of another type than is asked for.
class Given {
 public:
  Given(const Builtin& builtin, Arguments arguments);
  bool has(size_t place) const { return place < values_.size() && !values_[place].second.empty(); }
  const Value& operator[](size_t place) const;  // Fault if it is not given
  View text(size_t place) const;
  View text(size_t place, View otherwise) const { return has(place) ? text(place) : otherwise; }
  int64_t whole(size_t place) const;
  int64_t whole(size_t place, int64_t otherwise) const {
    return has(place) ? whole(place) : otherwise;
  }
  // A width or a number of times: one that is far too large is cut, so that it may be reckoned
  // with.
  int64_t count(size_t place, int64_t otherwise) const {
    constexpr int64_t kFar = int64_t{1} << 40;
    return std::clamp(whole(place, otherwise), -kFar, kFar);
  }
  bool truth(size_t place, bool otherwise) const;
  const Arguments& all() const { return all_; }  // of "*"

 private:
  [[noreturn]] void wrong(size_t place, const char* expected) const;

  const Builtin& builtin_;
  std::vector<std::pair<std::string, Values>> values_;  // name, and none or one
  Arguments all_;
};

// Null if there is none of that name.
const Builtin* row_of(std::span<const Builtin> table, std::string_view name);
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
const Builtin* find_method(const Value& of, std::string_view name);

std::span<const Builtin> list_filters();  // those of find_filter() that are of lists

Value call(const Builtin& builtin, Run& run, const Value& of, Arguments arguments);

// The operators, by their signs: + - * / // % ** and unary ones.
Value operate(std::string_view sign, const Value& a, const Value& b, Budget& budget);
Value negated(const Value& value);
// The % of a text: `format` with these in it.
Text formatted(View format, const Arguments& arguments, Budget& budget);
Value sliced(const Value& of, const Value& from, const Value& to, const Value& step,
             Budget& budget);

}  // namespace chaski::jinja
