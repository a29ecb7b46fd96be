// Turns a JSON schema into rules. Its methods are defined by subject: json_schema.cpp has schemas,
// choices and lists of values, json_schema_numbers.cpp, _strings.cpp, _lists.cpp and _objects.cpp
// the types.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/grammar/json_parts.h"
#include "engine/grammar/json_schema_merge.h"

namespace chaski::json_schema {

class SchemaParser : private SchemaMerger {
 public:
  SchemaParser(const GrammarSource& source, Rules& rules);
  void parse();

 private:
  // Equal schemas share one rule, however they are reached: so a schema may refer to itself.
  Rules::Rule rule_of(const Json& schema, const std::string& path);
  Rules::Part called(const Json& schema, const std::string& path);
  // A schema that nothing fits is a part that is never completed, which removes all callers of its
  // rule.
  Rules::Part part_or_none(const Json& schema, const std::string& path);
  Rules::Part part_of(const Json& schema, const std::string& path);
  Rules::Part part_of_merged(const Json& schema, const std::string& path);
  Rules::Part part_of_choice(const Json& schema, const char* key, const std::string& path);
  Rules::Part part_of_values(const Json& schema, const std::string& path);
  Rules::Part part_of_type(const Json& schema, std::string_view type, const std::string& path);

  Rules::Part part_of_number(const Json& schema, std::string_view type, const std::string& path);
  // A bound as a whole number; for integers a fractional bound becomes the next allowed one.
  std::optional<int64_t> bound(const Json& schema, const char* key, bool integer,
                               const std::string& path) const;
  // The value of minLength, maxItems and others; `otherwise` if the keyword is missing.
  int count(const Json& schema, const char* key, int otherwise, const std::string& path) const;

  Rules::Part part_of_string(const Json& schema, const std::string& path);
  std::string pattern_of(const std::string& format, const std::string& path) const;

  Rules::Part part_of_array(const Json& schema, const std::string& path);
  bool is_unique(const Json& schema, const std::string& path) const;
  // A list with uniqueItems: some of the values that an item may have, in the order of the schema,
  // because a grammar cannot remember which values have occurred.
  Rules::Part part_of_set(const Json& item, int least, int most, const std::string& path);

  // Members whose names fit one of several patterns and whose values fit one schema.
  struct Patterned {
    std::vector<std::string> patterns;
    const Json* schema = nullptr;
  };
  // No pattern may fit one of `names`, which the schema names itself.
  Patterned patterned(const Json& schema, const std::set<std::string>& names,
                      const std::string& path);
  Rules::Part name_of(const Patterned& others, const std::string& path);
  Rules::Part part_of_object(const Json& schema, const std::string& path);
  Rules::Rule member(Rules::Part key, const Json& value, const std::string& path);

  Rules& rules_;
  JsonParts parts_;
  std::map<std::string, Rules::Rule> known_;  // by the text of the schema
  int steps_ = 0, depth_ = 0;
};

}  // namespace chaski::json_schema
