// Lookup and calls of built-ins, and the tests and functions.
#include "engine/text/jinja/jinja_builtins.h"

#include <algorithm>
#include <cmath>

#include "engine/text/jinja/jinja_run.h"

namespace chaski::jinja {

Given::Given(const Builtin& builtin, Arguments arguments) : builtin_(builtin) {
  const std::string_view parameters = builtin.parameters;
  if (parameters == "*") {
    all_ = std::move(arguments);
    return;
  }
  for (size_t at = 0; at < parameters.size();) {
    const size_t end = std::min(parameters.find(' ', at), parameters.size());
    values_.emplace_back(parameters.substr(at, end - at), Values());
    at = end + 1;
  }
  if (arguments.positional.size() > values_.size())
    fault("{}() has {} arguments, expected at most {}", builtin.name, arguments.positional.size(),
          values_.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i].second = {std::move(arguments.positional[i])};
  for (auto& named : arguments.named) {
    const auto own = std::find_if(values_.begin(), values_.end(),
                                  [&](const auto& v) { return v.first == named.first; });
    if (own == values_.end() || !own->second.empty())
      fault("{}() has the argument \"{}\", expected {}", builtin.name, named.first,
            parameters.empty() ? "none" : parameters);
    own->second = {std::move(named.second)};
  }
}

const Value& Given::operator[](size_t place) const {
  if (!has(place))
    fault("{}() is missing its argument \"{}\"", builtin_.name, values_[place].first);
  return values_[place].second[0];
}

void Given::wrong(size_t place, const char* expected) const {
  fault("{}() has {} for \"{}\", expected {}", builtin_.name, (*this)[place].type_name(),
        values_[place].first, expected);
}

View Given::text(size_t place) const {
  if (!(*this)[place].is_text()) wrong(place, "a text");
  return (*this)[place].text();
}

int64_t Given::whole(size_t place) const {
  if (!(*this)[place].is_whole()) wrong(place, "a whole number");
  return (*this)[place].whole();
}

bool Given::truth(size_t place, bool otherwise) const {
  return has(place) ? (*this)[place].truth() : otherwise;
}

Value call(const Builtin& builtin, Run& run, const Value& of, Arguments arguments) {
  run.budget.spend(2 + arguments.positional.size() + arguments.named.size());
  if (of.is_text()) run.budget.spend(of.text().size() / 32);
  return builtin.run(run, of, Given(builtin, std::move(arguments)));
}

namespace {

using Type = Value::Type;

int64_t whole_of(const Value& value) {
  if (value.is_undefined()) fault("{}", value.why_undefined());
  if (!value.is_whole()) fault("found {}, expected a whole number", value.type_name());
  return value.whole();
}

bool all_cased(const Value& of, Run& run, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  for (const char32_t c : shown(of, run.budget)) {
    if (other(c)) return false;
    any = any || wanted(c);
  }
  return any;
}

bool is_sequence(const Value& of) {
  return of.is_text() || of.is_dict() ||
         (of.is_list() && (of.list().kind <= Sequence::tuple || of.list().kind == Sequence::range));
}

using R = Run&;
using V = const Value&;
using G = const Given&;

constexpr Builtin kTests[] = {
    {"defined", "", [](R, V of, G) -> Value { return !of.is_undefined(); }},
    {"undefined", "", [](R, V of, G) -> Value { return of.is_undefined(); }},
    {"none", "", [](R, V of, G) -> Value { return of.is_none(); }},
    {"boolean", "", [](R, V of, G) -> Value { return of.is(Type::boolean); }},
    {"true", "", [](R, V of, G) -> Value { return of.is(Type::boolean) && of.truth(); }},
    {"false", "", [](R, V of, G) -> Value { return of.is(Type::boolean) && !of.truth(); }},
    {"integer", "", [](R, V of, G) -> Value { return of.is(Type::integer); }},
    {"float", "", [](R, V of, G) -> Value { return of.is(Type::real); }},
    {"number", "", [](R, V of, G) -> Value { return of.is_number(); }},
    {"string", "", [](R, V of, G) -> Value { return of.is_text(); }},
    {"mapping", "", [](R, V of, G) -> Value { return of.is_dict(); }},
    {"sequence", "", [](R, V of, G) -> Value { return is_sequence(of) || of.is_undefined(); }},
    {"iterable", "",
     [](R, V of, G) -> Value {
       return of.is_text() || of.is_dict() || of.is_list() || of.is_undefined();
     }},
    {"callable", "",
     [](R, V of, G) -> Value {
       return of.is_undefined() || (of.is(Type::object) && of.object().callable());
     }},
    {"escaped", "", [](R, V, G) -> Value { return false; }},
    {"lower", "", [](R run, V of, G) -> Value { return all_cased(of, run, is_lower, is_upper); }},
    {"upper", "", [](R run, V of, G) -> Value { return all_cased(of, run, is_upper, is_lower); }},
    {"odd", "", [](R, V of, G) -> Value { return whole_of(of) % 2 != 0; }},
    {"even", "", [](R, V of, G) -> Value { return whole_of(of) % 2 == 0; }},
    {"divisibleby", "num",
     [](R run, V of, G given) -> Value {
       const Value rest = operate("%", of, given[0], run.budget);
       if (!rest.is_number()) fault("divisibleby of {}, expected a number", of.type_name());
       return rest.real() == 0;
     }},
    {"sameas", "other", [](R, V of, G given) -> Value { return of.same_object(given[0]); }},
    {"in", "seq", [](R run, V of, G given) -> Value { return contains(given[0], of, run.budget); }},
    {"==", "other", [](R run, V of, G given) -> Value { return equal(of, given[0], run.budget); }},
    {"eq", "other", [](R run, V of, G given) -> Value { return equal(of, given[0], run.budget); }},
    {"equalto", "other",
     [](R run, V of, G given) -> Value { return equal(of, given[0], run.budget); }},
    {"!=", "other", [](R run, V of, G given) -> Value { return !equal(of, given[0], run.budget); }},
    {"ne", "other", [](R run, V of, G given) -> Value { return !equal(of, given[0], run.budget); }},
    {">", "other", [](R run, V of, G given) -> Value { return less(given[0], of, run.budget); }},
    {"gt", "other", [](R run, V of, G given) -> Value { return less(given[0], of, run.budget); }},
    {"greaterthan", "other",
     [](R run, V of, G given) -> Value { return less(given[0], of, run.budget); }},
    {">=", "other", [](R run, V of, G given) -> Value { return !less(of, given[0], run.budget); }},
    {"ge", "other", [](R run, V of, G given) -> Value { return !less(of, given[0], run.budget); }},
    {"<", "other", [](R run, V of, G given) -> Value { return less(of, given[0], run.budget); }},
    {"lt", "other", [](R run, V of, G given) -> Value { return less(of, given[0], run.budget); }},
    {"lessthan", "other",
     [](R run, V of, G given) -> Value { return less(of, given[0], run.budget); }},
    {"<=", "other", [](R run, V of, G given) -> Value { return !less(given[0], of, run.budget); }},
    {"le", "other", [](R run, V of, G given) -> Value { return !less(given[0], of, run.budget); }},
    {"filter", "",
     [](R, V of, G) -> Value { return of.is_text() && find_filter(utf8(of.text())) != nullptr; }},
    {"test", "",
     [](R, V of, G) -> Value { return of.is_text() && find_test(utf8(of.text())) != nullptr; }},
};

constexpr int64_t kMostRange = 100'000;  // like transformers' sandbox

Value range(Run& run, const Value&, const Given& given) {
  const bool one = !given.has(1);
  const int64_t from = one ? 0 : given.whole(0), to = given.whole(one ? 0 : 1),
                step = given.whole(2, 1);
  if (step == 0) fault("range() has a step of 0");
  Values out;
  for (__int128 i = from; step > 0 ? i < to : i > to; i += step) {
    if (int64_t(out.size()) == kMostRange) fault("range() has more than {} numbers", kMostRange);
    out.emplace_back(int64_t(i));
  }
  return Value::list(run.budget, std::move(out), Sequence::range);
}

// The arguments of dict() and namespace() as pairs.
std::vector<std::pair<Value, Value>> pairs_of(Run& run, const Given& given) {
  std::vector<std::pair<Value, Value>> out;
  for (const Value& source : given.all().positional) {
    if (source.is_dict()) {
      out.insert(out.end(), source.dict().items.begin(), source.dict().items.end());
      continue;
    }
    for (const Value& item : items_of(source, run.budget)) {
      const Values pair = items_of(item, run.budget);
      if (pair.size() != 2) fault("an item has {} values, expected a key and a value", pair.size());
      out.emplace_back(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : given.all().named)
    out.emplace_back(Value::text(run.budget, name), value);
  return out;
}

Value dict(Run& run, const Value&, const Given& given) {
  return Value::dict(run.budget, pairs_of(run, given));
}

Value make_namespace(Run& run, const Value&, const Given& given) {
  std::vector<std::pair<std::string, Value>> values;
  const Value made = dict(run, Value(), given);
  for (const auto& [key, value] : made.dict().items)
    values.emplace_back(utf8(shown(key, run.budget)), value);
  return Value(std::shared_ptr<Object>(run.make_namespace(std::move(values))));
}

Value raise_exception(Run& run, const Value&, const Given& given) {
  throw Refusal{utf8(shown(given[0], run.budget))};
}

Value strftime_now(Run& run, const Value&, const Given& given) {
  const std::string format = utf8(given.text(0));
  std::tm parts{};
  localtime_r(&run.now, &parts);
  if (format.size() > 1000) fault("strftime_now() has a format of {} bytes", format.size());
  char out[4096];
  return Value::text(run.budget,
                     std::string_view(out, std::strftime(out, sizeof out, format.c_str(), &parts)));
}

constexpr Builtin kFunctions[] = {
    {"range", "start stop step", range},      {"dict", "*", dict},
    {"namespace", "*", make_namespace},       {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

const Builtin* row_of(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Builtin& one) { return one.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Builtin* find_test(std::string_view name) { return row_of(kTests, name); }
const Builtin* find_function(std::string_view name) { return row_of(kFunctions, name); }

}  // namespace chaski::jinja
