// JSON schemas: whether a value that is known, such as one of an enum, fits.
#include <algorithm>

#include "engine/grammar/recognizer.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema/decimal_range.h"
#include "engine/grammar/schema/json_formats.h"
#include "engine/grammar/schema/json_schema_keywords.h"
#include "engine/grammar/schema/json_schema_logic.h"

namespace chaski::json_schema {

bool SchemaLogic::fits(const Json& value, const Json& schema, const std::string& path,
                       int depth) const {
  if (depth > 2 * kMostNested) wrong(path, "schemas are nested too deep for a given value");
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object()) wrong(path, "is {}, expected a schema: an object", shown(schema));
  spend(4 * kValueWork, path);
  for (const auto& [key, said] : schema.items()) {
    if (is_remark(key) || key == "then" || key == "else" || key == "nullable") continue;
    if (!keyword_fits(value, schema, key, path, depth + 1)) return false;
  }
  return true;
}

bool SchemaLogic::keyword_fits(const Json& value, const Json& schema, const std::string& key,
                               const std::string& path, int depth) const {
  const Json& said = schema[key];
  const auto in = [&](const Json& part) { return fits(value, part, path + "/" + key, depth); };
  if (key == "$ref") return fits(value, target(reference(schema, path), path), path, depth);
  if (key == "allOf" || key == "anyOf" || key == "oneOf") {
    expect_list(said, path + "/" + key);
    const auto n = size_t(std::count_if(said.begin(), said.end(), in));
    return key == "allOf" ? n == said.size() : key == "anyOf" ? n > 0 : n == 1;
  }
  if (key == "not") return !in(said);
  if (key == "if") {
    const char* then = in(said) ? "then" : "else";
    return !schema.contains(then) || fits(value, schema[then], path, depth);
  }
  if (key == "const") return value == said;
  if (key == "enum") return std::find(said.begin(), said.end(), value) != said.end();
  if (key == "type") {
    const bool null = schema.contains("nullable") && schema["nullable"] == Json(true);
    const Json types = said.is_array() ? said : Json::array({said});
    return (null && value.is_null()) ||
           std::any_of(types.begin(), types.end(), [&](const Json& type) {
             return type.is_string() && is_of(value, type.get_ref<const std::string&>());
           });
  }
  if (!is_known(key)) unknown(key, path);
  const auto concerns = [&](const char* type) {
    const auto family = std::find_if(families().begin(), families().end(), [&](const Family& f) {
      return std::string_view(f.type) == type;
    });
    return std::find(family->keywords.begin(), family->keywords.end(), key) !=
           family->keywords.end();
  };
  if (concerns("string"))
    return !value.is_string() || text_fits(value.get_ref<const std::string&>(), key, said, path);
  if (concerns("object")) return !value.is_object() || object_fits(value, schema, key, path, depth);
  if (concerns("array")) return !value.is_array() || array_fits(value, schema, key, path, depth);
  if (!value.is_number()) return true;
  if (!said.is_number()) wrong(path, "{} is {}, expected a number", key, shown(said));
  if (key == "minimum") return value >= said;
  if (key == "maximum") return value <= said;
  if (key == "exclusiveMinimum") return value > said;
  if (key == "exclusiveMaximum") return value < said;
  const auto number = Decimal::of(spelled(value)), of = Decimal::of(spelled(said));
  if (!number || !of || of->digits <= 0)
    wrong(path + "/multipleOf", "is {}, which is not supported with {}", shown(said), shown(value));
  const int decimals = std::max(number->decimals, of->decimals);
  return number->in_units(decimals) % of->in_units(decimals) == 0;
}

bool SchemaLogic::text_fits(const std::string& text, const std::string& key, const Json& value,
                            const std::string& path) const {
  if (key == "pattern" || key == "format") return matches(text, key, value, path);
  const auto size =
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return key == "minLength" ? Json(size) >= value : Json(size) <= value;
}

std::string SchemaLogic::pattern_of(const Json& format, const std::string& path) const {
  if (!format.is_string()) wrong(path, "is {}, expected a text", shown(format));
  const auto pattern = pattern_of_format(format.get_ref<const std::string&>());
  if (!pattern)
    wrong(path, "format {} is not supported, expected {}; or a pattern", shown(format),
          format_names());
  return "^(?:" + *pattern + ")$";
}

std::shared_ptr<const Rules> SchemaLogic::texts_of(const std::string& key, const Json& value,
                                                   const std::string& path) const {
  const std::string place = path + "/" + key;
  if (!value.is_string()) wrong(path, "{} is {}, expected a text", key, shown(value));
  auto& known = texts_[key + ":" + value.get_ref<const std::string&>()];
  if (known) return known;
  const GrammarSource source = pattern_source(
      place, key == "format" ? pattern_of(value, place) : value.get_ref<const std::string&>());
  auto rules = std::make_shared<Rules>(source);
  const Rules::Rule root = rules->declare("pattern");
  rules->define(
      root, search_part(*rules, source, [&](const CodeSet& set) { return rules->one_of(set); }));
  rules->finish(root);
  return known = rules;
}

bool SchemaLogic::matches(const std::string& text, const std::string& key, const Json& value,
                          const std::string& path) const {
  Recognizer recognizer(*texts_of(key, value, path));
  spend(text.size() + kPartWork, path);
  recognizer.allow_work();
  const Recognizer::Place at = recognizer.read(recognizer.start(), text);
  return at != Recognizer::kNowhere && recognizer.may_end(at);
}

bool SchemaLogic::object_fits(const Json& value, const Json& schema, const std::string& key,
                              const std::string& path, int depth) const {
  const Json& said = schema[key];
  if (key == "minProperties") return Json(value.size()) >= said;
  if (key == "maxProperties") return Json(value.size()) <= said;
  const auto has = [&](const Json& name) {
    return name.is_string() && value.contains(name.get_ref<const std::string&>());
  };
  if (key == "required") return std::all_of(said.begin(), said.end(), has);
  if (key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies")
    return fits(value, condition(schema, key, path), path, depth);
  const auto named = [&](const std::string& name) {
    return schema.contains("properties") && schema["properties"].contains(name);
  };
  const auto pattern_fits = [&](const std::string& name) {
    if (!schema.contains("patternProperties")) return false;
    for (const auto& [pattern, part] : schema["patternProperties"].items())
      if (matches(name, "pattern", pattern, path)) return true;
    return false;
  };
  for (const auto& [name, member] : value.items()) {
    if (key == "propertyNames" && !fits(name, said, path + "/propertyNames", depth)) return false;
    if (key == "properties" && said.contains(name) &&
        !fits(member, said[name], path + "/properties/" + name, depth))
      return false;
    if (key == "patternProperties")
      for (const auto& [pattern, part] : said.items())
        if (matches(name, "pattern", pattern, path) && !fits(member, part, path, depth))
          return false;
    if (key == "additionalProperties" && !named(name) && !pattern_fits(name) &&
        !fits(member, said, path + "/additionalProperties", depth))
      return false;
  }
  return true;
}

bool SchemaLogic::array_fits(const Json& value, const Json& schema, const std::string& key,
                             const std::string& path, int depth) const {
  const Json& said = schema[key];
  if (key == "minItems") return Json(value.size()) >= said;
  if (key == "maxItems") return Json(value.size()) <= said;
  if (key == "uniqueItems") {
    if (said != Json(true)) return true;
    for (size_t i = 0; i < value.size(); ++i)
      if (std::find(value.begin(), value.begin() + std::ptrdiff_t(i), value[i]) !=
          value.begin() + std::ptrdiff_t(i))
        return false;
    return true;
  }
  // The schemas of the first entries, and of all others.
  const bool draft7 = schema.contains("items") && schema["items"].is_array();
  const Json* first = draft7                           ? &schema["items"]
                      : schema.contains("prefixItems") ? &schema["prefixItems"]
                                                       : nullptr;
  const size_t before = first ? first->size() : 0;
  const bool prefix = key == "prefixItems" || (key == "items" && draft7);
  if (prefix && !said.is_array()) wrong(path + "/" + key, "is {}, expected a list", shown(said));
  for (size_t i = 0; i < value.size(); ++i)
    if (prefix ? i < before && !fits(value[i], said[i], path + "/" + key, depth)
               : i >= before && !fits(value[i], said, path + "/" + key, depth))
      return false;
  return true;
}

}  // namespace chaski::json_schema
