// JSON schemas: objects.
#include <algorithm>
#include <utility>

#include "engine/grammar/regex.h"
#include "engine/grammar/schema/counted_entries.h"
#include "engine/grammar/schema/json_schema_keywords.h"
#include "engine/grammar/schema/json_schema_parser.h"

namespace chaski::json_schema {

SchemaParser::Patterned SchemaParser::patterned(const Json& schema,
                                                const std::set<std::string>& names,
                                                const std::string& path) {
  Patterned out;
  if (!schema.contains("patternProperties")) return out;
  const Json& said = schema["patternProperties"];
  const std::string place = path + "/patternProperties";
  if (!said.is_object()) wrong(place, "is {}, expected an object", shown(said));
  if (schema.contains("additionalProperties") && schema["additionalProperties"] != Json(false))
    wrong(path,
          "patternProperties together with additionalProperties is not supported, expected false");
  for (const auto& [pattern, value] : said.items()) {
    if (out.schema && *out.schema != value)
      wrong(path, "several patternProperties are not supported, expected one of them");
    out.schema = &value;
    out.patterns.push_back(pattern);
    for (const std::string& name : names)
      if (matches(name, "pattern", pattern, place))
        wrong(place,
              "pattern {} also fits {}, a name in \"properties\" or \"required\", which is not "
              "supported",
              escaped(pattern), escaped(name));
  }
  return out;
}

// `allowed` constrains names (propertyNames); null: nothing. Names of `named` are left out.
Rules::Part SchemaParser::name_of(const Patterned& others, const Json& allowed,
                                  const std::vector<std::string>& named, const std::string& path) {
  const auto any_of = [&](Rules& rules, const auto& characters) {
    std::vector<Rules::Part> names;
    for (const std::string& pattern : others.patterns)
      names.push_back(search_part(rules, pattern_source(path, pattern), characters));
    return rules.either(names);
  };
  if (allowed.is_null() && !others.schema) return parts_.name_except(named);
  if (allowed.is_null())
    return parts_.quoted(any_of(rules_, [&](const CodeSet& set) { return parts_.character(set); }));
  TextProduct texts;
  if (others.schema) {
    auto rules = std::make_shared<Rules>(source());
    const Rules::Rule root = rules->declare("a name");
    rules->define(root, any_of(*rules, [&](const CodeSet& set) { return rules->one_of(set); }));
    rules->finish(root);
    texts.add(rules, true);
  }
  Json demands = allowed;
  if (!named.empty()) demands["not"]["anyOf"].push_back({{"enum", named}});
  texts.limit(count(allowed, "minLength", 0, path),
              count(allowed, "maxLength", Rules::kUnlimited, path));
  add_texts(texts, demands, path);
  return part_of_product(texts, path);
}

// The schema of member names; null: any name.
Json SchemaParser::names_schema(const Json& schema, const std::string& path) const {
  if (!schema.contains("propertyNames")) return Json();
  const std::string place = path + "/propertyNames";
  try {
    Json allowed = flat(schema["propertyNames"], place);
    for (const auto& [key, value] : allowed.items())
      if (key == "anyOf" || key == "oneOf")
        wrong(place, "{} is not supported here, expected a pattern or an enum", key);
      else if (!is_known(key))
        unknown(key, place);
    return allowed;
  } catch (const NothingFits&) {
    return {{"enum", Json::array()}};
  }
}

Rules::Part SchemaParser::part_of_object(const Json& schema, const std::string& path) {
  const Json none = Json::object();
  const Json& said = schema.contains("properties") ? schema["properties"] : none;
  if (!said.is_object()) wrong(path, "properties is {}, expected an object", shown(said));
  std::set<std::string> required;
  if (schema.contains("required")) {
    expect_names(schema["required"], path);
    required = names_of(schema["required"]);
  }
  // If the schema names members, others occur only if a keyword mentions them.
  Json more = said.empty() && required.empty() ? Json(true) : Json(false);
  if (schema.contains("additionalProperties")) more = schema["additionalProperties"];
  if (!more.is_object() && !more.is_boolean())
    wrong(path, "additionalProperties is {}, expected true, false or a schema", shown(more));
  const int least = count(schema, "minProperties", 0, path),
            most = count(schema, "maxProperties", Rules::kUnlimited, path);
  const Json allowed = names_schema(schema, path);
  const auto may_be = [&](const std::string& name) {
    return allowed.is_null() || fits(Json(name), allowed, path);
  };
  const bool counted = least > 0 || most != Rules::kUnlimited;
  std::set<std::string> unnamed = required, all_names = required;
  std::vector<std::pair<std::string, const Json*>> members;
  for (const std::string& name : required)
    if (!may_be(name))
      throw NothingFits{
          fmt::format("required has {}, which propertyNames excludes", escaped(name))};
  for (const auto& [name, value] : said.items()) {
    unnamed.erase(name), all_names.insert(name);
    if (may_be(name)) members.emplace_back(name, &value);
  }
  const Patterned others = patterned(schema, all_names, path);
  if (said.empty() && required.empty() && more == Json(true) && !others.schema && !counted &&
      allowed.is_null())
    return parts_.any_object();
  if (!unnamed.empty() && schema.contains("additionalProperties") && more == Json(false))
    throw NothingFits{
        fmt::format("required has {}, which is not one of properties, and "
                    "additionalProperties is false",
                    escaped(*unnamed.begin()))};
  Json other_values;
  const Json any = more == Json(false) ? Json(true) : more;
  for (const std::string& name : unnamed) members.emplace_back(name, &any);
  if (others.schema)
    more = *others.schema;
  else if (least > int(members.size()) && !schema.contains("additionalProperties"))
    more = true;
  if (more != Json(false) && allowed.contains("enum")) {
    for (const Json& value : allowed["enum"]) {
      if (!value.is_string() || !may_be(value)) continue;
      const auto name = value.get<std::string>();
      const bool fits_one =
          !others.schema || std::any_of(others.patterns.begin(), others.patterns.end(),
                                        [&](const std::string& pattern) {
                                          return matches(name, "pattern", pattern, path);
                                        });
      if (fits_one && all_names.insert(name).second) members.emplace_back(name, &other_values);
    }
    other_values = std::exchange(more, false);
  }
  // Other members may all have the same name, so only one of them counts.
  const std::string said_counts = this->said(schema, {"minProperties", "maxProperties"});
  const int surely = int(members.size()) + (more != Json(false) ? 1 : 0);
  if ((least > surely && more == Json(false)) ||
      (most != Rules::kUnlimited && most < std::max(least, int(required.size()))))
    throw NothingFits{fmt::format("{}{}{} named members, {} of them required", said_counts,
                                  said_counts.empty() ? "" : ", with ", members.size(),
                                  required.size())};
  if (least > surely)
    wrong(path,
          "minProperties is {}, which is not supported with {} named members, expected "
          "at most {}",
          least, members.size(), surely);
  const Rules::Part open = rules_.chain(rules_.text("{"), parts_.space());
  CountedEntries entries(rules_, parts_, open.end, least, most);
  std::vector<std::string> names;
  for (const auto& [name, value] : members) {
    const std::string place = path + "/properties/" + name;
    names.push_back(name);
    const Rules::Part key = rules_.text(spelled(name) + ":");
    spend(counted ? kPartWork * entries.ways() : 0, path);
    entries.add(member(key, *value, place), !required.contains(name));
  }
  if (more != Json(false)) {
    const std::string place =
        path + (others.schema ? "/patternProperties" : "/additionalProperties");
    const Rules::Part name = name_of(others, allowed, names, place);
    spend(counted ? kPartWork * entries.ways() : 0, path);
    entries.add_others(member(rules_.chain(name, rules_.text(":")), more, place), least);
  }
  return rules_.chain({open.begin, entries.close(least)}, rules_.text("}"));
}

Rules::Rule SchemaParser::member(Rules::Part key, const Json& value, const std::string& path) {
  spend(path.size(), path);
  const Rules::Rule rule = rules_.declare(path);
  rules_.define(rule, rules_.chain(rules_.chain(key, parts_.space()), called(value, path)));
  return rule;
}

}  // namespace chaski::json_schema
