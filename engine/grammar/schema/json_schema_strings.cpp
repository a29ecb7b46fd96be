// JSON schemas: strings, by length, pattern or format.
#include "engine/grammar/regex.h"
#include "engine/grammar/schema/json_schema_parser.h"

namespace chaski::json_schema {

namespace {

// These texts and no others.
std::shared_ptr<const Rules> literals(const std::vector<std::string>& texts,
                                      const GrammarSource& source) {
  auto rules = std::make_shared<Rules>(source);
  std::vector<Rules::Part> parts;
  for (const std::string& text : texts) parts.push_back(rules->text(text));
  const Rules::Rule root = rules->declare("texts");
  rules->define(root, rules->either(parts));
  rules->finish(root);
  return rules;
}

}  // namespace

Rules::Part SchemaParser::part_of_string(const Json& schema, const std::string& path) {
  const int least = count(schema, "minLength", 0, path),
            most = count(schema, "maxLength", Rules::kUnlimited, path);
  const bool bounded = schema.contains("minLength") || schema.contains("maxLength");
  if (most != Rules::kUnlimited && most < least)
    throw NothingFits{said(schema, {"minLength", "maxLength"})};
  const bool pattern = schema.contains("pattern"), format = schema.contains("format");
  if (schema.contains("not") || (bounded ? pattern || format : pattern && format)) {
    TextProduct texts;
    texts.limit(least, most);
    add_texts(texts, schema, path);
    return part_of_product(texts, path);
  }
  if (!pattern && !format && distinct_)
    return parts_.quoted(rules_.repeated(parts_.character(CodeSet::all()), least, most));
  if (!pattern && !format) return bounded ? parts_.string(least, most) : parts_.any_string();
  const char* key = pattern ? "pattern" : "format";
  const std::string place = path + "/" + key;
  if (!schema[key].is_string()) wrong(path, "{} is {}, expected a text", key, shown(schema[key]));
  const GrammarSource source = pattern_source(
      place, pattern ? schema[key].get<std::string>() : pattern_of(schema[key], place));
  return parts_.quoted(
      search_part(rules_, source, [&](const CodeSet& set) { return parts_.character(set); }));
}

void SchemaParser::add_texts(TextProduct& texts, const Json& schema,
                             const std::string& path) const {
  const auto add = [&](const Json& part, bool fits) {
    for (const char* key : {"pattern", "format"})
      if (part.contains(key)) texts.add(texts_of(key, part[key], path), fits);
  };
  add(schema, true);
  if (!schema.contains("not")) return;
  std::vector<std::string> excluded;
  for (const Json& value : excluded_values(schema))
    if (value.is_string()) excluded.push_back(value.get<std::string>());
  if (!excluded.empty()) texts.add(literals(excluded, source()), false);
  for (const Json& one : schema["not"]["anyOf"])
    one.contains("not") ? add(one["not"], true) : add(one, false);
}

Rules::Part SchemaParser::part_of_product(TextProduct& texts, const std::string& path) {
  const auto part = texts.part(rules_);
  if (!part)
    wrong(path,
          "pattern, format, lengths and exceptions together need more than {} states, expected "
          "fewer of them or a smaller length",
          TextProduct::kMostStates);
  spend(kPartWork * texts.states(), path);
  return parts_.quoted(*part);
}

}  // namespace chaski::json_schema
