// Turns a JSON schema into rules. Its methods are defined by subject: json_schema.cpp has schemas,
// choices and lists of values, json_schema_numbers.cpp, _strings.cpp, _lists.cpp and _objects.cpp
// the types.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/grammar/schema/json_parts.h"
#include "engine/grammar/schema/json_schema_merge.h"
#include "engine/grammar/schema/text_product.h"

namespace chaski::json_schema {

class SchemaParser : private SchemaMerger {
 public:
  SchemaParser(const GrammarSource& source, Rules& rules);
  void parse();

 private:
  // Equal schemas share one rule, however they are reached: so a schema may refer to itself.
  // The rule of a schema that nothing fits has a part that is never completed, which removes all
  // its callers.
  Rules::Rule rule_of(const Json& schema, const std::string& path);
  Rules::Part called(const Json& schema, const std::string& path);
  Rules::Part part_of(const Json& schema, const std::string& path);
  Rules::Part part_of_merged(const Json& schema, const std::string& path);
  Rules::Part part_of_choice(const Json& schema, const char* key, const std::string& path);
  Rules::Part part_of_values(const Json& schema, const std::string& path);
  Rules::Part part_of_type(const Json& schema, std::string_view type, const std::string& path);

  Rules::Part part_of_number(const Json& schema, std::string_view type, const std::string& path);
  std::optional<Decimal> bound(const Json& schema, const char* key, const std::string& path) const;
  // The value of minLength, maxItems and others; `otherwise` if the keyword is missing.
  int count(const Json& schema, const char* key, int otherwise, const std::string& path) const;
  // "minimum is 3, maximum is 2": those of the keywords that the schema has.
  static std::string said(const Json& schema, std::initializer_list<const char*> keys);

  Rules::Part part_of_string(const Json& schema, const std::string& path);
  Rules::Part part_of_product(TextProduct& texts, const std::string& path);
  // Adds what pattern, format and exceptions demand of a text, as far as it is more than lengths.
  void add_texts(TextProduct& texts, const Json& schema, const std::string& path) const;

  Rules::Part part_of_array(const Json& schema, const std::string& path);
  bool is_unique(const Json& schema, const std::string& path) const;
  std::optional<size_t> values_of_item(const Json& item, const std::string& path) const;

  // Members whose names fit one of several patterns and whose values fit one schema.
  struct Patterned {
    std::vector<std::string> patterns;
    const Json* schema = nullptr;
  };
  // No pattern may fit one of `names`, which the schema names itself.
  Patterned patterned(const Json& schema, const std::set<std::string>& names,
                      const std::string& path);
  Rules::Part name_of(const Patterned& others, const Json& allowed,
                      const std::vector<std::string>& named, const std::string& path);
  Json names_schema(const Json& schema, const std::string& path) const;
  Rules::Part part_of_object(const Json& schema, const std::string& path);
  Rules::Rule member(Rules::Part key, const Json& value, const std::string& path);

  Rules& rules_;
  JsonParts parts_;
  std::map<std::string, Rules::Rule> known_;  // by the text of the schema
  int steps_ = 0, depth_ = 0;
  // True inside an item of a list with uniqueItems. Each value then has one spelling only, so equal
  // values are equal texts (distinct_items.h).
  bool distinct_ = false;
};

}  // namespace chaski::json_schema
