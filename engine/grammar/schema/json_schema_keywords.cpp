#include "engine/grammar/schema/json_schema_keywords.h"

#include <algorithm>
#include <cmath>

namespace chaski::json_schema {

namespace {

// Keywords that do not constrain a value.
constexpr std::string_view kRemarks[] = {"$schema",
                                         "$id",
                                         "id",
                                         "$comment",
                                         "$defs",
                                         "definitions",
                                         "title",
                                         "default",
                                         "examples",
                                         "readOnly",
                                         "writeOnly",
                                         "deprecated",
                                         "description",
                                         "example",
                                         "$anchor",
                                         "discriminator",
                                         "contentMediaType",
                                         "$vocabulary"};

constexpr std::string_view kForAll[] = {"$ref", "allOf",    "anyOf", "oneOf", "enum", "const",
                                        "type", "nullable", "not",   "if",    "then", "else"};

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"object",
       {"properties", "required", "additionalProperties", "patternProperties", "minProperties",
        "maxProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"}},
      {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}},
      {"string", {"pattern", "format", "minLength", "maxLength"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {"integer", {}},
      {"boolean", {}},
      {"null", {}}};
  return all;
}

bool is_remark(std::string_view key) {
  return std::find(std::begin(kRemarks), std::end(kRemarks), key) != std::end(kRemarks) ||
         key.starts_with("x-");
}

bool is_known(std::string_view key) {
  if (std::find(std::begin(kForAll), std::end(kForAll), key) != std::end(kForAll)) return true;
  return std::any_of(families().begin(), families().end(), [&](const Family& f) {
    return std::find(f.keywords.begin(), f.keywords.end(), key) != f.keywords.end();
  });
}

bool is_of(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
}

bool is_about(const Json& schema, const Family& f) {
  return std::any_of(f.keywords.begin(), f.keywords.end(),
                     [&](std::string_view key) { return schema.contains(key); });
}

void settle_null(Json& schema) {
  if (!schema.contains("nullable")) return;
  if (schema["nullable"] == Json(true) && schema.contains("type")) {
    Json& type = schema["type"];
    if (!type.is_array()) type = Json::array({type});
    if (std::find(type.begin(), type.end(), Json("null")) == type.end()) type.push_back("null");
  }
  schema.erase("nullable");
}

std::set<std::string> names_of(const Json& list) {
  std::set<std::string> names;
  for (const Json& name : list) names.insert(name.get_ref<const std::string&>());
  return names;
}

}  // namespace chaski::json_schema
