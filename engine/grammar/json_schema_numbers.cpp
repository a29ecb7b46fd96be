// JSON schemas: numbers.
#include <cmath>

#include "engine/grammar/json_schema_parser.h"

namespace chaski::json_schema {

namespace {

// A double holds every whole number up to 2^53.
constexpr double kMostBound = 9007199254740992;

}  // namespace

std::optional<int64_t> SchemaParser::bound(const Json& schema, const char* key, bool integer,
                                           const std::string& path) const {
  if (!schema.contains(key)) return std::nullopt;
  const Json& value = schema[key];
  if (!value.is_number() || std::abs(value.get<double>()) > kMostBound)
    wrong(path, "{} is {}, expected a number between -2^53 and 2^53", key, shown(value));
  const double x = value.get<double>();
  const bool least = std::string_view(key).ends_with("inimum");
  if (x == std::floor(x)) return int64_t(x);
  if (!integer)
    wrong(path, "{} is {}, which is not supported, expected a whole number", key, shown(value));
  // A fraction is never reached, so its bound is the next integer whether exclusive or not. The
  // caller moves an exclusive bound by one, which is undone here in advance.
  const bool exclusive = std::string_view(key).starts_with("ex");
  const double next = least ? std::ceil(x) : std::floor(x);
  return int64_t(exclusive ? next + (least ? -1 : 1) : next);
}

// Multiples of a whole number are generated as integers.
Rules::Part SchemaParser::part_of_number(const Json& schema, std::string_view type,
                                         const std::string& path) {
  const bool multiple = schema.contains("multipleOf"), integer = type == "integer" || multiple;
  JsonParts::Bounds b;
  b.least = bound(schema, "minimum", integer, path);
  b.most = bound(schema, "maximum", integer, path);
  const auto above = bound(schema, "exclusiveMinimum", integer, path),
             below = bound(schema, "exclusiveMaximum", integer, path);
  if (above && (!b.least || *above >= *b.least)) b.least = above, b.least_too = false;
  if (below && (!b.most || *below <= *b.most)) b.most = below, b.most_too = false;
  if (!integer) return parts_.number(b);
  if (b.least && !b.least_too) ++*b.least;
  if (b.most && !b.most_too) --*b.most;
  if (!multiple) return parts_.integer(b.least, b.most);
  const int64_t of = step(schema["multipleOf"], path);
  if (!parts_.can_be_multiple(of, b.least, b.most))
    wrong(path,
          "multipleOf is {}, which is not supported, expected at most 100, or bounds with at "
          "most 1000 multiples between them",
          of);
  return parts_.multiple(of, b.least, b.most);
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
