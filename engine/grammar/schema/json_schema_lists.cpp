// JSON schemas: lists.
#include <algorithm>
#include <utility>

#include "engine/grammar/distinct_items.h"
#include "engine/grammar/schema/json_schema_keywords.h"
#include "engine/grammar/schema/json_schema_parser.h"

namespace chaski::json_schema {

namespace {

// Integers that are counted one by one. More are more than any list has items.
constexpr size_t kMostUnique = 4096;

}  // namespace

Rules::Part SchemaParser::part_of_array(const Json& schema, const std::string& path) {
  Json first = Json::array(), rest;  // null: no more
  if (schema.contains("prefixItems")) first = schema["prefixItems"];
  if (schema.contains("items")) rest = schema["items"];
  if (rest.is_array()) {  // as draft 7 has it
    first = rest;
    rest = schema.contains("additionalItems") ? schema["additionalItems"] : Json();
  } else if (schema.contains("additionalItems")) {
    wrong(path, "additionalItems without a list of items is not supported");
  }
  if (!first.is_array()) wrong(path, "prefixItems is {}, expected a list of schemas", shown(first));
  const int least = count(schema, "minItems", 0, path);
  int most = count(schema, "maxItems", Rules::kUnlimited, path);
  if (most != Rules::kUnlimited && least > most)
    throw NothingFits{said(schema, {"minItems", "maxItems"})};
  // Without `items`, further entries may be any value. They are generated only if minItems asks.
  if (rest.is_null() && (first.empty() || least > int(first.size()))) rest = true;
  if (rest == Json(false)) rest = Json();
  if (rest.is_null() && least > int(first.size()))
    throw NothingFits{
        fmt::format("minItems is {}, but the schema allows at most {}", least, first.size())};

  const bool distinct = is_unique(schema, path) && (most == Rules::kUnlimited || most > 1);
  if (distinct && distinct_)
    wrong(path + "/uniqueItems", "is not supported inside items of another such list");
  if (distinct && first.empty())
    if (const auto n = values_of_item(rest, path)) {
      if (least > int(*n))
        throw NothingFits{
            fmt::format("minItems is {}, but items have {} different values", least, *n)};
      if (most == Rules::kUnlimited || most > int(*n)) most = int(*n);
    }
  const bool outside = std::exchange(distinct_, distinct_ || distinct);
  const Rules::Part bracket = rules_.text("[");
  if (distinct) rules_.mark_distinct(bracket.end);
  const Rules::Part open = rules_.chain(bracket, parts_.space());
  const Rules::State close = rules_.state();
  Rules::State at = open.end;
  const auto add = [&](Rules::Rule item, int i) {
    Rules::Part part = rules_.call(item);
    if (i > 0) part = rules_.chain(parts_.comma(), part);
    rules_.skip(at, part.begin);
    at = part.end;
  };
  const auto may_close = [&](int i) {
    if (i < least) return;
    const Rules::Part space = i > 0 ? parts_.space() : rules_.nothing();
    rules_.skip(at, space.begin), rules_.skip(space.end, close);
  };
  const auto full = [&](int i) { return most != Rules::kUnlimited && i >= most; };
  int i = 0;
  for (; i < int(first.size()) && !full(i); ++i)
    may_close(i), add(rule_of(first[size_t(i)], fmt::format("{}/prefixItems/{}", path, i)), i);
  if (!rest.is_null()) {
    const Rules::Rule item = rule_of(rest, path + "/items");
    for (; most == Rules::kUnlimited ? i < std::max(least, 1) : i < most; ++i)
      may_close(i), add(item, i);
    if (most == Rules::kUnlimited) {
      const Rules::Part more =
          rules_.repeated(rules_.chain(parts_.comma(), rules_.call(item)), 0, Rules::kUnlimited);
      rules_.skip(at, more.begin);
      at = more.end;
    }
  }
  may_close(i);
  distinct_ = outside;
  return rules_.chain({open.begin, close}, rules_.text("]"));
}

bool SchemaParser::is_unique(const Json& schema, const std::string& path) const {
  if (!schema.contains("uniqueItems")) return false;
  if (!schema["uniqueItems"].is_boolean())
    wrong(path, "uniqueItems is {}, expected true or false", shown(schema["uniqueItems"]));
  return schema["uniqueItems"].get<bool>();
}

// How many different values an item has, if those are an enum, a range of integers, or true, false
// and null. Nothing if it may have any number.
std::optional<size_t> SchemaParser::values_of_item(const Json& item,
                                                   const std::string& path) const {
  Json said = item.is_object() ? flat(item, path + "/items") : item, values = Json::array();
  if (!said.is_object()) return std::nullopt;
  const std::vector<std::string> types = types_of(said, path);
  const auto only = [&](auto... names) {
    return std::all_of(types.begin(), types.end(),
                       [&](const std::string& type) { return ((type == names) || ...); });
  };
  if (said.contains("enum")) {
    values = said["enum"];
    said.erase("enum");
  } else if (only("boolean", "null")) {
    values = {true, false, nullptr};
  } else if (only("integer")) {
    const auto least = bound(said, "minimum", path), most = bound(said, "maximum", path);
    const Scaled low = least ? least->in_units(0, true) : 0, high = most ? most->in_units(0) : 0;
    if (!least || !most || high - low >= Scaled(kMostUnique)) return std::nullopt;
    for (Scaled i = low; i <= high; ++i) values.push_back(int64_t(i));
  } else {
    return std::nullopt;
  }
  std::set<std::string> different;
  for (const Json& value : values)
    if (fits(value, said, path)) different.insert(text_of_value(spelled(value)));
  return different.size();
}

}  // namespace chaski::json_schema
