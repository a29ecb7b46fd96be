// JSON schemas: lists.
#include <algorithm>

#include "engine/grammar/counted_entries.h"
#include "engine/grammar/json_schema_keywords.h"
#include "engine/grammar/json_schema_parser.h"

namespace chaski::json_schema {

namespace {

constexpr size_t kMostUnique = 256;  // values of an enum with uniqueItems

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
  const int least = count(schema, "minItems", 0, path),
            most = count(schema, "maxItems", Rules::kUnlimited, path);
  // Without `items`, further entries may be any value. They are generated only if minItems asks.
  if (rest.is_null() && (first.empty() || least > int(first.size()))) rest = true;
  if (rest == Json(false)) rest = Json();

  if (is_unique(schema, path) && (most == Rules::kUnlimited || most > 1)) {
    if (!first.empty())
      wrong(path, "uniqueItems together with prefixItems is not supported, expected one of them");
    return part_of_set(rest, least, most, path);
  }

  const Rules::Part open = rules_.chain(rules_.text("["), parts_.space());
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
  return rules_.chain({open.begin, close}, rules_.text("]"));
}

bool SchemaParser::is_unique(const Json& schema, const std::string& path) const {
  if (!schema.contains("uniqueItems")) return false;
  if (!schema["uniqueItems"].is_boolean())
    wrong(path, "uniqueItems is {}, expected true or false", shown(schema["uniqueItems"]));
  return schema["uniqueItems"].get<bool>();
}

// Some of the values that an item may have, in their order: no grammar remembers which have come.
Rules::Part SchemaParser::part_of_set(const Json& item, int least, int most,
                                      const std::string& path) {
  const Json said = item.is_object() ? flat(item, path + "/items") : item;
  Json values = Json::array();
  if (said.is_object() && said.contains("enum")) {
    for (const auto& [key, value] : said.items())
      if (key != "enum" && key != "type") values = Json();
    const std::vector<std::string> types = types_of(said, path);
    if (said["enum"].size() > kMostUnique)
      wrong(path, "uniqueItems is not supported of an enum of more than {} values", kMostUnique);
    if (values.is_array())
      for (const Json& value : said["enum"]) {
        if (value.is_structured())
          wrong(path, "uniqueItems is not supported of an enum of objects or lists");
        if (std::find(values.begin(), values.end(), value) == values.end() &&
            std::any_of(types.begin(), types.end(),
                        [&](const std::string& type) { return is_of(value, type); }))
          values.push_back(value);
      }
  } else if (said == Json{{"type", "boolean"}}) {
    values = {true, false};
  }
  if (!values.is_array() || values.empty())
    wrong(path,
          "uniqueItems is not supported where items have no enum, expected one or maxItems 1");
  if (least > int(values.size()) || (most != Rules::kUnlimited && most < least))
    throw NothingFits();
  if (most >= int(values.size())) most = Rules::kUnlimited;
  const Rules::Part open = rules_.chain(rules_.text("["), parts_.space());
  CountedEntries entries(rules_, parts_, open.end, least, most);
  for (const Json& value : values) {
    const Rules::Rule one = rules_.declare(path + "/items");
    rules_.define(one, rules_.text(spelled(value)));
    entries.add(one, true);
  }
  return rules_.chain({open.begin, entries.close(least)}, rules_.text("]"));
}

}  // namespace chaski::json_schema
