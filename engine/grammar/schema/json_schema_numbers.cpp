// JSON schemas: numbers.
#include <algorithm>
#include <utility>

#include "engine/grammar/schema/json_schema_parser.h"

namespace chaski::json_schema {

namespace {

// Decimals of a number between bounds, unless a bound has more.
constexpr int kDecimals = 6;
// Digits before the point of different numbers that are different doubles.
constexpr int kDistinctDigits = 9;

}  // namespace

// A bound without digits is one that no supported number reaches.
std::optional<Decimal> SchemaParser::bound(const Json& schema, const char* key,
                                           const std::string& path) const {
  if (!schema.contains(key)) return std::nullopt;
  const Json& value = schema[key];
  if (!value.is_number()) wrong(path, "{} is {}, expected a number", key, shown(value));
  const bool least = std::string_view(key).ends_with("inimum");
  if (const auto bound = Decimal::of(spelled(value), least ? 1 : -1)) return bound;
  if ((value > Json(0)) == least)
    wrong(path + "/" + key, "is {}, which is not supported", shown(value));
  return std::nullopt;
}

Rules::Part SchemaParser::part_of_number(const Json& schema, std::string_view type,
                                         const std::string& path) {
  const auto least = bound(schema, "minimum", path), most = bound(schema, "maximum", path),
             above = bound(schema, "exclusiveMinimum", path),
             below = bound(schema, "exclusiveMaximum", path);
  std::vector<Decimal> except;
  for (const Json& value : excluded_values(schema))
    if (const auto number = value.is_number() ? Decimal::of(spelled(value)) : std::nullopt)
      except.push_back(*number);
  const bool multiple = schema.contains("multipleOf"),
             bounded = multiple || schema.contains("minimum") || schema.contains("maximum") ||
                       schema.contains("exclusiveMinimum") || schema.contains("exclusiveMaximum");
  const bool any = type == "number" && !bounded && except.empty();
  if (any && !distinct_) return parts_.number();

  DecimalRange range;
  range.shortest = distinct_;
  if (multiple) {
    const Decimal of = step(schema["multipleOf"], path);
    range.step = of.digits, range.decimals = of.decimals;
    if (type == "integer") {  // the smallest multiple that is whole
      Scaled divisor = of.digits, rest = power_of_ten(of.decimals);
      while (rest != 0) divisor = std::exchange(rest, divisor % rest);
      range.step = of.digits / divisor, range.decimals = 0;
    }
  } else if (type == "number") {
    range.decimals = kDecimals;
    for (const auto& b : {least, most, above, below})
      if (b) range.decimals = std::max(range.decimals, b->decimals);
    for (const Decimal& x : except) range.decimals = std::max(range.decimals, x.decimals);
  }
  const int units = range.decimals;
  if (any) range.most = power_of_ten(kDistinctDigits + units) - 1, range.least = -*range.most;
  if (least) range.least = least->in_units(units, true);
  if (most) range.most = most->in_units(units);
  if (above)
    range.least =
        std::max(range.least.value_or(above->in_units(units) + 1), above->in_units(units) + 1);
  if (below) {
    const Scaled last = below->in_units(units, true) - 1;
    range.most = std::min(range.most.value_or(last), last);
  }
  const Json& format = schema.contains("format") ? schema["format"] : Json();
  if (const int bits = format == Json("int32") ? 31 : format == Json("int64") ? 63 : 0) {
    const Scaled limit = (Scaled(1) << bits) * power_of_ten(units),
                 last = limit - power_of_ten(units);
    range.least = std::max(range.least.value_or(-limit), -limit);
    range.most = std::min(range.most.value_or(last), last);
  }
  if (range.least && range.most && *range.least > *range.most)
    throw NothingFits{
        said(schema, {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "format"}) +
        fmt::format(": no {} is between them", type)};
  if (!range.is_supported())
    wrong(path + "/multipleOf",
          "is {}, which is not supported, expected a multiple of at most 1000 steps of its last "
          "digit (such as 100.0 or 1000), or bounds with at most 1000 multiples between them",
          shown(schema["multipleOf"]));
  std::vector<Scaled> gaps;
  for (const Decimal& x : except)
    if (x.decimals <= units) gaps.push_back(x.in_units(units));
  return range.part(rules_, gaps);
}

std::string SchemaParser::said(const Json& schema, std::initializer_list<const char*> keys) {
  std::string text;
  for (const char* key : keys)
    if (schema.contains(key))
      text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", key, spelled(schema[key]));
  return text;
}

int SchemaParser::count(const Json& schema, const char* key, int otherwise,
                        const std::string& path) const {
  if (!schema.contains(key)) return otherwise;
  const Json& value = schema[key];
  if (!value.is_number_integer() || value < Json(0) || value > Json(Rules::kMostRepeats))
    wrong(path, "{} is {}, expected a whole number from 0 to {}", key, shown(value),
          Rules::kMostRepeats);
  return value.get<int>();
}

}  // namespace chaski::json_schema
