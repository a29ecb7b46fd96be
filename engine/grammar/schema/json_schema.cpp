#include "engine/grammar/schema/json_schema.h"

#include <algorithm>

#include "engine/grammar/distinct_items.h"
#include "engine/grammar/schema/json_schema_keywords.h"
#include "engine/grammar/schema/json_schema_parser.h"

namespace chaski {

namespace json_schema {

constexpr int kMostRules = 1 << 14;

SchemaParser::SchemaParser(const GrammarSource& source, Rules& rules)
    : SchemaMerger(source), rules_(rules), parts_(rules) {}

void SchemaParser::parse() { rules_.finish(rule_of(root(), "")); }

Rules::Rule SchemaParser::rule_of(const Json& schema, const std::string& path) {
  if (++steps_ > kMostRules) wrong(path, "the schema becomes more than {} rules", kMostRules);
  if (depth_ > 4 * kMostNested) wrong(path, "schemas are nested too deep, expected $ref");
  spend(kPartWork + path.size(), path);
  spend(schema, path);
  const auto [known, fresh] =
      known_.try_emplace(spelled(schema) + (distinct_ ? "!" : ""), Rules::Rule(-1));
  if (!fresh) return known->second;
  const Rules::Rule rule = known->second = rules_.declare(path.empty() ? "the schema" : path);
  ++depth_;
  try {
    rules_.define(rule, part_of(schema, path));
  } catch (const NothingFits& nothing) {
    rules_.explain(rule, nothing.why);
    rules_.define(rule, rules_.either({}));
  }
  --depth_;
  return rule;
}
Rules::Part SchemaParser::called(const Json& schema, const std::string& path) {
  return rules_.call(rule_of(schema, path));
}

Rules::Part SchemaParser::part_of(const Json& schema, const std::string& path) {
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) throw NothingFits();
    return distinct_ ? part_of(Json::object(), path) : parts_.any_value();
  }
  if (!schema.is_object()) wrong(path, "is {}, expected a schema: an object", shown(schema));
  for (const auto& [key, value] : schema.items())
    if (!is_remark(key) && !is_known(key)) unknown(key, path);
  for (const auto& [key, value] : schema.items())
    if (key == "$ref" || key == "allOf" || is_condition(key, value))
      return part_of_merged(schema, path);
  for (const char* key : {"anyOf", "oneOf"})
    if (schema.contains(key)) return part_of_choice(schema, key, path);
  if (schema.contains("enum") || schema.contains("const")) return part_of_values(schema, path);
  std::vector<Rules::Part> parts;
  const std::vector<std::string> types = types_of(schema, path);
  if (types.size() == families().size() && !schema.contains("not") && !distinct_ &&
      std::none_of(families().begin(), families().end(),
                   [&](const Family& f) { return is_about(schema, f); }))
    return parts_.any_value();
  const bool numbers = std::find(types.begin(), types.end(), "number") != types.end();
  NothingFits last;
  for (const std::string& type : types) {
    if (numbers && type == "integer") continue;
    try {
      parts.push_back(part_of_type(schema, type, path));
    } catch (const NothingFits& nothing) {
      last = nothing;
    }
  }
  if (parts.empty()) throw last;
  return rules_.either(parts);
}

// A schema with nothing but $ref is the rule that it refers to.
Rules::Part SchemaParser::part_of_merged(const Json& schema, const std::string& path) {
  size_t says = 0;
  for (const auto& [key, value] : schema.items()) says += is_remark(key) ? 0 : 1;
  if (says == 1 && schema.contains("$ref")) {
    const std::string to = reference(schema, path);
    return called(target(to, path), to);
  }
  return called(flat(schema, path), path + "/allOf");
}

Rules::Part SchemaParser::part_of_choice(const Json& schema, const char* key,
                                         const std::string& path) {
  const std::string here = path + "/" + key;
  expect_list(schema[key], here);
  const bool one = std::string_view(key) == "oneOf";
  Json rest = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (name == key || is_remark(name)) continue;
    expect_kind(name, value, path);
    spend(value, path);
    rest[name] = value;
  }
  settle_null(rest);
  std::vector<Rules::Part> parts;
  std::vector<Json> options;
  NothingFits last;
  for (size_t i = 0; i < schema[key].size(); ++i) {
    const Json& option = schema[key][i];
    const std::string place = fmt::format("{}/{}", here, i);
    try {
      Json whole;
      if (one || !rest.empty()) {
        spend(rest, place);
        whole = merged(rest, flat(option, place), place);
      }
      parts.push_back(called(rest.empty() ? option : whole, place));
      if (one) options.push_back(std::move(whole));
    } catch (const NothingFits& nothing) {
      last = nothing;
    }
  }
  if (parts.empty())
    throw NothingFits{
        fmt::format("no schema of {} fits{}{}", key, last.why.empty() ? "" : ": ", last.why)};
  const std::vector<bool> listed = listed_apart(options, path);
  for (size_t i = 0; i < options.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (!(listed[i] && listed[j]) && !apart(options[i], options[j], path, 0))
        wrong(path,
              "oneOf: a value may fit both schemas {} and {}, which is not supported, "
              "expected anyOf, or a required member with different const values",
              j, i);
  return rules_.either(parts);
}

Rules::Part SchemaParser::part_of_values(const Json& schema, const std::string& path) {
  Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
  expect_list(values, path + "/enum");
  Json rest = Json::object();
  for (const auto& [key, value] : schema.items())
    if (key != "enum" && (key != "const" || schema.contains("enum"))) rest[key] = value;
  std::vector<Rules::Part> parts;
  for (const Json& value : values)
    if (fits(value, rest, path))
      parts.push_back(rules_.text(distinct_ ? text_of_value(spelled(value)) : spelled(value)));
  if (parts.empty())
    throw NothingFits{fmt::format("no value of {} fits the other keywords",
                                  schema.contains("enum") ? "enum" : "const")};
  return rules_.either(parts);
}

Rules::Part SchemaParser::part_of_type(const Json& schema, std::string_view type,
                                       const std::string& path) {
  const Json excluded = excluded_values(schema);
  const auto is_excluded = [&](const Json& value) {
    return std::find(excluded.begin(), excluded.end(), value) != excluded.end();
  };
  if (type == "null" || type == "boolean") {
    std::vector<Rules::Part> values;
    for (const Json& value : type == "null" ? Json::array({nullptr}) : Json::array({true, false}))
      if (!is_excluded(value)) values.push_back(rules_.text(spelled(value)));
    if (values.empty()) throw NothingFits{"not excludes all values"};
    return rules_.either(values);
  }
  for (const Json& value : excluded)
    if (value.is_structured() && is_of(value, type))
      wrong(path + "/not", "a given object or list is not supported here, expected other values");
  if (type == "integer" || type == "number") return part_of_number(schema, type, path);
  if (type == "string") return part_of_string(schema, path);
  return type == "array" ? part_of_array(schema, path) : part_of_object(schema, path);
}

}  // namespace json_schema

std::shared_ptr<const Rules> parse_json_schema(const GrammarSource& source) {
  auto rules = std::make_shared<Rules>(source);
  json_schema::SchemaParser(source, *rules).parse();
  return rules;
}

}  // namespace chaski
