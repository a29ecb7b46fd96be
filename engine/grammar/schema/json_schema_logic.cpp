#include "engine/grammar/schema/json_schema_logic.h"

#include <algorithm>

#include "engine/grammar/schema/json_schema_keywords.h"

namespace chaski::json_schema {

namespace {

Json listed(Json value) { return value.is_array() ? value : Json::array({std::move(value)}); }

// The keyword with the opposite meaning, and how its value differs.
struct Opposite {
  std::string_view key, type, opposite;
  int more;
};
constexpr Opposite kOpposites[] = {{"minimum", "number", "exclusiveMaximum", 0},
                                   {"maximum", "number", "exclusiveMinimum", 0},
                                   {"exclusiveMinimum", "number", "maximum", 0},
                                   {"exclusiveMaximum", "number", "minimum", 0},
                                   {"minLength", "string", "maxLength", -1},
                                   {"maxLength", "string", "minLength", 1},
                                   {"minItems", "array", "maxItems", -1},
                                   {"maxItems", "array", "minItems", 1},
                                   {"minProperties", "object", "maxProperties", -1},
                                   {"maxProperties", "object", "minProperties", 1}};

}  // namespace

Json SchemaLogic::except(const Json& condition) {
  return {{"not", {{"anyOf", Json::array({condition})}}}};
}

bool SchemaLogic::is_exceptions(const Json& value) {
  const auto is_one = [](const Json& one) {
    if (!one.is_object() || one.empty()) return false;
    if (one.size() == 1) return one.contains("enum") && one["enum"].is_array();
    const auto is_text = [](const Json& s, size_t size) {
      return s.is_object() && s.size() == size && (s.contains("pattern") || s.contains("format"));
    };
    return one.contains("type") && one["type"] == Json("string") &&
           (is_text(one, 2) || (one.size() == 2 && one.contains("not") && is_text(one["not"], 1)));
  };
  return value.is_object() && value.size() == 1 && value.contains("anyOf") &&
         value["anyOf"].is_array() && !value["anyOf"].empty() &&
         std::all_of(value["anyOf"].begin(), value["anyOf"].end(), is_one);
}

Json SchemaLogic::excluded_values(const Json& schema) {
  Json values = Json::array();
  if (schema.contains("not"))
    for (const Json& one : schema["not"]["anyOf"])
      if (one.contains("enum")) values.insert(values.end(), one["enum"].begin(), one["enum"].end());
  return values;
}

bool SchemaLogic::is_condition(const std::string& key, const Json& value) {
  return (key == "not" && !is_exceptions(value)) || key == "if" || key == "dependentRequired" ||
         key == "dependentSchemas" || key == "dependencies";
}

Json SchemaLogic::condition(const Json& schema, const std::string& key,
                            const std::string& path) const {
  const Json& value = schema[key];
  const std::string here = path + "/" + key;
  spend(value, here);
  if (key == "not") return negation(value, here);
  const auto part = [&](const char* name) {
    return schema.contains(name) ? schema[name] : Json(true);
  };
  if (key == "if") {
    if (!schema.contains("then") && !schema.contains("else")) return true;
    const Json options[] = {{{"allOf", Json::array({value, part("then")})}},
                            {{"allOf", Json::array({negation(value, here), part("else")})}}};
    return {{"anyOf", options}};
  }
  // Each member that occurs demands other members, or a schema of the whole object.
  if (!value.is_object()) wrong(here, "is {}, expected an object", shown(value));
  Json all = Json::array();
  for (const auto& [name, then] : value.items()) {
    if (!then.is_array() && !then.is_object() && !then.is_boolean())
      wrong(here + "/" + name, "is {}, expected {}", shown(then),
            key == "dependentSchemas" ? "a schema" : "a list of names");
    Json needed = {{"required", Json::array({name})}};
    if (then.is_array())
      needed["required"].insert(needed["required"].end(), then.begin(), then.end());
    else
      needed = {{"allOf", Json::array({needed, then})}};
    const Json options[] = {{{"properties", {{name, false}}}}, needed};
    all.push_back({{"anyOf", options}});
  }
  return all.empty() ? Json(true) : Json{{"allOf", all}};
}

Json SchemaLogic::negation(const Json& schema, const std::string& path, int depth) const {
  if (depth > kMostNested) wrong(path, "$ref and not form a cycle");
  if (schema.is_boolean()) return !schema.get<bool>();
  if (!schema.is_object()) wrong(path, "is {}, expected a schema: an object", shown(schema));
  spend(schema, path);
  Json options = Json::array();
  const auto add = [&](Json option) { options.push_back(std::move(option)); };
  const auto not_of = [&](const Json& part, const std::string& of) {
    return negation(part, path + "/" + of, depth + 1);
  };
  for (const auto& [key, value] : schema.items()) {
    const auto opposite = std::find_if(std::begin(kOpposites), std::end(kOpposites),
                                       [&, k = key](const Opposite& o) { return o.key == k; });
    if (is_remark(key) || key == "then" || key == "else" || key == "nullable") continue;
    if (key == "$ref") {
      add(negation(target(reference(schema, path), path), path, depth + 1));
    } else if (key == "allOf" || key == "anyOf" || key == "oneOf") {
      expect_list(value, path + "/" + key);
      Json none = Json::array();
      for (size_t i = 0; i < value.size(); ++i)
        none.push_back(not_of(value[i], fmt::format("{}/{}", key, i)));
      if (key == "allOf")
        options.insert(options.end(), none.begin(), none.end());
      else
        add({{"allOf", none}});
      for (size_t i = 0; key == "oneOf" && i < value.size(); ++i)
        for (size_t j = 0; j < i; ++j) {
          spend(value[i], path), spend(value[j], path);
          add({{"allOf", Json::array({value[j], value[i]})}});
        }
    } else if (key == "not") {
      add(value);
    } else if (key == "if") {
      if (schema.contains("then"))
        add({{"allOf", Json::array({value, not_of(schema["then"], "then")})}});
      if (schema.contains("else"))
        add({{"allOf", Json::array({not_of(value, "if"), not_of(schema["else"], "else")})}});
    } else if (key == "type") {
      const Json said = listed(value);
      const auto has = [&](const char* type) {
        return std::find(said.begin(), said.end(), Json(type)) != said.end();
      };
      const bool null = schema.contains("nullable") && schema["nullable"] == Json(true);
      Json others = Json::array();
      for (const Family& f : families()) {
        const std::string_view type = f.type;
        const bool number = type == "number" || type == "integer";
        if (!has(f.type) && !(number && (has("number") || has("integer"))) &&
            !(null && type == "null"))
          others.push_back(f.type);
      }
      if (!others.empty()) add({{"type", others}});
    } else if (key == "enum" || key == "const") {
      if (key == "enum") expect_list(value, path + "/enum");
      add(except({{"enum", key == "enum" ? value : Json::array({value})}}));
    } else if (key == "required") {
      if (!value.is_array()) wrong(path, "required is {}, expected a list of names", shown(value));
      for (const Json& name : value) {
        if (!name.is_string()) wrong(path, "required has {}, expected names", shown(name));
        add({{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}});
      }
    } else if (key == "properties" && value.is_object()) {
      for (const auto& [name, part] : value.items())
        add({{"type", "object"},
             {"required", Json::array({name})},
             {"properties", {{name, not_of(part, "properties/" + name)}}}});
    } else if (key == "dependentRequired" && value.is_object()) {
      for (const auto& [name, needed] : value.items())
        for (const Json& other : listed(needed)) {
          if (!other.is_string())
            wrong(path, "dependentRequired has {}, expected names", shown(other));
          add({{"type", "object"},
               {"required", Json::array({name})},
               {"properties", {{other.get<std::string>(), false}}}});
        }
    } else if (opposite != std::end(kOpposites)) {
      if (!value.is_number()) wrong(path, "{} is {}, expected a number", key, shown(value));
      if (opposite->more == 0)
        add({{"type", opposite->type}, {std::string(opposite->opposite), value}});
      else if (const double limit = value.get<double>() + opposite->more; limit >= 0)
        add({{"type", opposite->type}, {std::string(opposite->opposite), int64_t(limit)}});
    } else if (key == "pattern" || key == "format") {
      add(except({{"type", "string"}, {key, value}}));
      options.back()["type"] = "string";
    } else {
      wrong(path + "/" + escaped(key), "is not supported inside not and if");
    }
  }
  if (options.empty()) return false;
  return options.size() == 1 ? options[0] : Json{{"anyOf", options}};
}

}  // namespace chaski::json_schema
