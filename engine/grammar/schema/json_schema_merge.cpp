#include "engine/grammar/schema/json_schema_merge.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/grammar/schema/json_schema_keywords.h"

namespace chaski::json_schema {

namespace {

Json common_types(const Json& a, const Json& b) {
  const auto list = [](const Json& t) { return t.is_array() ? t : Json::array({t}); };
  const auto has = [](const Json& types, const char* name) {
    return std::find(types.begin(), types.end(), Json(name)) != types.end();
  };
  const Json mine = list(a), other = list(b);
  Json common = Json::array();
  for (const Family& f : families()) {
    const bool integer = std::string_view(f.type) == "integer";
    const auto holds = [&](const Json& types) {
      return has(types, f.type) || (integer && has(types, "number"));
    };
    if (holds(mine) && holds(other)) common.push_back(f.type);
  }
  if (common.empty())
    throw NothingFits{
        fmt::format("type is {} and {}, which exclude each other", spelled(a), spelled(b))};
  return common;
}

// For lookups by value.
struct Less {
  bool operator()(const Json* a, const Json* b) const { return *a < *b; }
};
using Values = std::set<const Json*, Less>;
Values values_of(const Json& list) {
  Values values;
  for (const Json& value : list) values.insert(&value);
  return values;
}

bool disjoint(const Json& a, const Json& b) {
  const Values values = values_of(a);
  return std::none_of(b.begin(), b.end(), [&](const Json& v) { return values.contains(&v); });
}

}  // namespace

Json SchemaMerger::flat(const Json& schema, const std::string& path, int depth) const {
  if (depth > kMostNested) wrong(path, "$ref and allOf form a cycle");
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) throw NothingFits();
    return Json::object();
  }
  if (!schema.is_object()) wrong(path, "is {}, expected a schema: an object", shown(schema));
  spend(kPartWork, path);
  Json out = Json::object();
  std::vector<Json> more;
  for (const auto& [key, value] : schema.items()) {
    if (key == "$ref") {
      more.push_back(flat(target(reference(schema, path), path), path, depth + 1));
    } else if (key == "allOf") {
      expect_list(value, path + "/allOf");
      for (const Json& part : value) more.push_back(flat(part, path + "/allOf", depth + 1));
    } else if (key == "const") {
      spend(value, path);
      more.push_back({{"enum", Json::array({value})}});
    } else if (is_condition(key, value)) {
      more.push_back(flat(condition(schema, key, path), path + "/" + key, depth + 1));
    } else if (!is_remark(key) && key != "then" && key != "else") {
      expect_kind(key, value, path);
      spend(value, path);
      out[key] = value;
    }
  }
  settle_null(out);
  for (Json& part : more) out = merged(std::move(out), std::move(part), path);
  return out;
}

void SchemaMerger::expect_kind(const std::string& key, const Json& value,
                               const std::string& path) const {
  if (key == "properties" && !value.is_object())
    wrong(path, "properties is {}, expected an object", shown(value));
  if (key == "enum") expect_list(value, path + "/enum");
  if ((key == "pattern" || key == "format") && !value.is_string())
    wrong(path, "{} is {}, expected a text", key, shown(value));
  if (key == "type") expect_types(value, path);
  if (key == "required") expect_names(value, path);
}

void SchemaMerger::expect_types(const Json& said, const std::string& path) const {
  for (const Json& type : said.is_array() ? said : Json::array({said})) {
    const bool known =
        type.is_string() && std::any_of(families().begin(), families().end(),
                                        [&](const Family& f) { return type == Json(f.type); });
    if (!known)
      wrong(path, "type is {}, expected object, array, string, number, integer, boolean or null",
            shown(type));
  }
}

void SchemaMerger::expect_names(const Json& value, const std::string& path) const {
  if (!value.is_array()) wrong(path, "required is {}, expected a list of names", shown(value));
  for (const Json& name : value)
    if (!name.is_string()) wrong(path, "required has {}, expected names", shown(name));
}

Json SchemaMerger::both(const Json& a, const Json& b, const std::string& path) const {
  spend(a, path), spend(b, path);
  return a == b ? a : Json{{"allOf", Json::array({a, b})}};
}

void SchemaMerger::spread_additional(const Json& from, Json& to, const std::string& path) const {
  const auto more = from.find("additionalProperties");
  if (more == from.end() || *more == Json(true) || !to.contains("properties")) return;
  const Json none = Json::object();
  const Json& named = from.contains("properties") ? from["properties"] : none;
  spend(to["properties"].size() * named.size(), path);
  for (auto& [name, schema] : to["properties"].items())
    if (!named.contains(name)) schema = *more == Json(false) ? *more : both(schema, *more, path);
}

Json SchemaMerger::merged(Json a, Json b, const std::string& path) const {
  spread_additional(a, b, path), spread_additional(b, a, path);
  if (a.contains("prefixItems") != b.contains("prefixItems") &&
      (a.contains("items") || b.contains("items")))
    wrong(path, "allOf: prefixItems together with items of another part is not supported");
  for (const Json* one : {&a, &b})
    if (const Json& other = one == &a ? b : a;
        one->contains("patternProperties") && !other.contains("patternProperties") &&
        other.contains("additionalProperties") && other["additionalProperties"] != Json(true))
      wrong(path,
            "allOf: patternProperties together with additionalProperties of another part is not "
            "supported");
  Json more = Json::array();  // exceptions
  for (auto& [key, value] : b.items()) {
    if (!a.contains(key)) {
      a[key] = std::move(value);
      continue;
    }
    Json& mine = a[key];
    spend(mine, path), spend(value, path);
    if (mine == value) continue;
    if (key == "type") {
      mine = common_types(mine, value);
    } else if (key == "required") {
      std::set<std::string> names = names_of(mine);
      for (const Json& name : value)
        if (names.insert(name.get_ref<const std::string&>()).second) mine.push_back(name);
    } else if (key == "properties") {
      spend(3 * (mine.size() + value.size()) * value.size(), path);
      for (const auto& [name, schema] : value.items())
        mine[name] = mine.contains(name) ? both(mine[name], schema, path) : schema;
    } else if (key == "pattern" || key == "format") {
      more.push_back({{"type", "string"}, {"not", {{key, value}}}});
    } else if (key == "not") {
      for (Json& one : value["anyOf"]) more.push_back(std::move(one));
    } else if (key == "anyOf" || key == "oneOf") {
      expect_list(mine, path + "/" + key), expect_list(value, path + "/" + key);
      Json pairs = Json::array();
      for (const Json& one : mine)
        for (const Json& other : value) pairs.push_back(both(one, other, path));
      mine = std::move(pairs);
    } else if (key == "items" || key == "additionalProperties" || key == "propertyNames") {
      mine = mine == Json(false) || value == Json(false) ? Json(false) : both(mine, value, path);
    } else if (key == "enum") {
      Json common = Json::array();
      const Values others = values_of(value);
      for (const Json& v : mine)
        if (others.contains(&v)) common.push_back(v);
      if (common.empty()) throw NothingFits{"no value is in both lists of enum"};
      mine = common;
    } else if (key == "uniqueItems") {
      mine = mine == Json(true) || value == Json(true);
    } else if (key == "multipleOf") {
      mine = common_step(step(mine, path), step(value, path), path);
    } else if (mine.is_number() && value.is_number()) {
      const bool least = key.starts_with("min") || key == "exclusiveMinimum";
      if ((mine < value) == least) mine = value;
    } else {
      wrong(path, "{} differs in two schemas that must both fit, which is not supported",
            escaped(key));
    }
  }
  for (Json& one : more) {
    Json& known = a["not"]["anyOf"];
    if (std::find(known.begin(), known.end(), one) == known.end()) known.push_back(std::move(one));
  }
  return a;
}

std::vector<std::string> SchemaMerger::said_types(const Json& schema,
                                                  const std::string& path) const {
  std::vector<std::string> types;
  if (!schema.contains("type")) {
    for (const Family& f : families())
      if (!schema.contains("enum") ||
          std::any_of(schema["enum"].begin(), schema["enum"].end(),
                      [&](const Json& value) { return is_of(value, f.type); }))
        types.push_back(f.type);
    return types;
  }
  const Json& said = schema["type"];
  expect_types(said, path);
  for (const Json& type : said.is_array() ? said : Json::array({said}))
    types.push_back(type.get<std::string>());
  const bool null = schema.contains("nullable") && schema["nullable"] == Json(true);
  if (null && std::find(types.begin(), types.end(), "null") == types.end()) types.push_back("null");
  return types;
}

std::vector<std::string> SchemaMerger::types_of(const Json& schema, const std::string& path) const {
  const std::vector<std::string> types = said_types(schema, path);
  if (schema.contains("type")) return types;
  std::vector<std::string> meant;
  for (const Family& f : families())
    if (is_about(schema, f)) meant.push_back(f.type);
  return meant.empty() ? types : meant;
}

Decimal SchemaMerger::step(const Json& value, const std::string& path) const {
  const auto step = value.is_number() ? Decimal::of(spelled(value)) : std::nullopt;
  if (!step || step->digits <= 0)
    wrong(path + "/multipleOf", "is {}, expected a number above 0 with at most {} decimals",
          shown(value), kMostDecimals);
  return *step;
}

Json SchemaMerger::common_step(const Decimal& a, const Decimal& b, const std::string& path) const {
  const int decimals = std::max(a.decimals, b.decimals);
  const Scaled x = a.in_units(decimals), y = b.in_units(decimals), most = power_of_ten(15);
  Scaled divisor = x, rest = y;
  while (rest != 0) divisor = std::exchange(rest, divisor % rest);
  if (x > most || y > most || x / divisor * y > most)
    wrong(path + "/multipleOf", "the common multiple of two schemas has more than 15 digits");
  return Json::parse(fmt::format("{}e-{}", int64_t(x / divisor * y), decimals));
}

std::vector<bool> SchemaMerger::listed_apart(const std::vector<Json>& options,
                                             const std::string& path) const {
  std::vector<bool> listed;
  std::map<const Json*, size_t, Less> of;
  for (const Json& option : options) {
    listed.push_back(option.contains("enum"));
    if (!listed.back()) continue;
    spend(option["enum"], path);
    for (const Json& value : option["enum"])
      if (of.try_emplace(&value, listed.size()).first->second != listed.size())
        return std::vector<bool>(options.size(), false);
  }
  return listed;
}

bool SchemaMerger::apart(const Json& a, const Json& b, const std::string& path, int depth) const {
  if (depth > kMostNested || a.contains("anyOf") || b.contains("anyOf") || a.contains("oneOf") ||
      b.contains("oneOf"))
    return false;
  spend(kPartWork, path);
  for (const Json* schema : {&a, &b})
    for (const char* key : {"enum", "required"})
      if (schema->contains(key)) spend((*schema)[key], path);
  try {
    if (a.contains("enum") && b.contains("enum") && disjoint(a["enum"], b["enum"])) return true;
    const Json common = common_types(Json(said_types(a, path)), Json(said_types(b, path)));
    if (common != Json::array({"object"})) return false;
  } catch (const NothingFits&) {
    return true;
  }
  const Json none = Json::array();
  const auto needs = [&](const Json& s) {
    return names_of(s.contains("required") ? s["required"] : none);
  };
  const std::set<std::string> of_a = needs(a), of_b = needs(b);
  const auto lacks = [&](const Json& s, const std::string& name) {
    spend(s.contains("properties") ? s["properties"].size() : 0, path);
    return s.contains("additionalProperties") && s["additionalProperties"] == Json(false) &&
           !s.contains("patternProperties") &&
           (!s.contains("properties") || !s["properties"].contains(name));
  };
  for (const std::string& name : of_a)
    if (lacks(b, name)) return true;
  for (const std::string& name : of_b)
    if (lacks(a, name)) return true;
  if (!a.contains("properties") || !b.contains("properties")) return false;
  for (const auto& [name, schema] : a["properties"].items()) {
    spend(kValueWork, path);
    if (!of_a.contains(name) || !of_b.contains(name)) continue;
    spend(b["properties"].size(), path);
    if (!b["properties"].contains(name)) continue;
    try {
      if (apart(flat(schema, path), flat(b["properties"][name], path), path, depth + 1))
        return true;
    } catch (const NothingFits&) {
      return true;
    }
  }
  return false;
}

}  // namespace chaski::json_schema
