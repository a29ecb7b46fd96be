// JSON schemas: objects.
#include <algorithm>

#include "engine/grammar/counted_entries.h"
#include "engine/grammar/json_schema_keywords.h"
#include "engine/grammar/json_schema_parser.h"
#include "engine/grammar/recognizer.h"
#include "engine/grammar/regex.h"

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
    const GrammarSource source = pattern_source(place, pattern);
    Rules rules(source);
    const Rules::Rule root = rules.declare("root");
    rules.define(root,
                 search_part(rules, source, [&](const CodeSet& set) { return rules.one_of(set); }));
    rules.finish(root);
    Recognizer recognizer(rules);
    for (const std::string& name : names) {
      spend(name.size() + kValueWork, path);
      recognizer.allow_work();
      const Recognizer::Place at = recognizer.read(recognizer.start(), name);
      if (at != Recognizer::kNowhere && recognizer.may_end(at))
        wrong(path,
              "patternProperties {} fits {}, which properties or required names, and is not "
              "supported",
              escaped(pattern), escaped(name));
    }
  }
  return out;
}

Rules::Part SchemaParser::name_of(const Patterned& others, const std::string& path) {
  std::vector<Rules::Part> names;
  for (const std::string& pattern : others.patterns) {
    const GrammarSource source = pattern_source(path, pattern);
    names.push_back(
        search_part(rules_, source, [&](const CodeSet& set) { return parts_.character(set); }));
  }
  return parts_.quoted(rules_.either(names));
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
  const bool counted = least > 0 || most != Rules::kUnlimited;
  std::set<std::string> unnamed = required, all_names = required;
  std::vector<std::pair<std::string, const Json*>> members;
  for (const auto& [name, value] : said.items())
    members.emplace_back(name, &value), unnamed.erase(name), all_names.insert(name);
  const Patterned others = patterned(schema, all_names, path);
  if (said.empty() && required.empty() && more == Json(true) && !others.schema && !counted)
    return parts_.any_object();
  if (!unnamed.empty() && schema.contains("additionalProperties") && more == Json(false))
    throw NothingFits();
  const Json any = more == Json(false) ? Json(true) : more;
  for (const std::string& name : unnamed) members.emplace_back(name, &any);
  if (others.schema)
    more = *others.schema;
  else if (least > int(members.size()) && !schema.contains("additionalProperties"))
    more = true;
  // Other members may all have the same name, so only one of them counts.
  const int surely = int(members.size()) + (more != Json(false) ? 1 : 0);
  if ((least > surely && more == Json(false)) ||
      (most != Rules::kUnlimited && most < std::max(least, int(required.size()))))
    throw NothingFits();
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
    const Rules::Part name = others.schema ? name_of(others, place) : parts_.name_except(names);
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
