// The built-ins of the template language: filters, tests, functions, and methods of texts, lists
// and dicts. Each is a row of a table: name, parameter names, implementation.
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
  const char* parameters;  // separated by spaces; "*" accepts all arguments
  // `of` is the value before the | or the dot; none for a function.
  Value (*run)(Run& run, const Value& of, const Given& given);
};

// The arguments of one call, by parameter index. Throws Fault for an extra or unknown argument and
// for a wrong type.
class Given {
 public:
  Given(const Builtin& builtin, Arguments arguments);
  bool has(size_t place) const { return place < values_.size() && !values_[place].second.empty(); }
  const Value& operator[](size_t place) const;  // Fault if it was not given
  View text(size_t place) const;
  View text(size_t place, View otherwise) const { return has(place) ? text(place) : otherwise; }
  int64_t whole(size_t place) const;
  int64_t whole(size_t place, int64_t otherwise) const {
    return has(place) ? whole(place) : otherwise;
  }
  // A width or a count, limited to +-2^40 so that arithmetic with it cannot overflow.
  int64_t count(size_t place, int64_t otherwise) const {
    constexpr int64_t kFar = int64_t{1} << 40;
    return std::clamp(whole(place, otherwise), -kFar, kFar);
  }
  bool truth(size_t place, bool otherwise) const;
  const Arguments& all() const { return all_; }  // for "*"

 private:
  [[noreturn]] void wrong(size_t place, const char* expected) const;

  const Builtin& builtin_;
  std::vector<std::pair<std::string, Values>> values_;  // name, and zero or one value
  Arguments all_;
};

// Null if there is no row with that name.
const Builtin* row_of(std::span<const Builtin> table, std::string_view name);
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
const Builtin* find_method(const Value& of, std::string_view name);

std::span<const Builtin> list_filters();  // the list filters among those of find_filter()

Value call(const Builtin& builtin, Run& run, const Value& of, Arguments arguments);

// The binary operators: + - * / // % **.
Value operate(std::string_view sign, const Value& a, const Value& b, Budget& budget);
Value negated(const Value& value);
// The % operator of texts: replaces the conversions in `format`.
Text formatted(View format, const Arguments& arguments, Budget& budget);
Value sliced(const Value& of, const Value& from, const Value& to, const Value& step,
             Budget& budget);

}  // namespace chaski::jinja
