// Conditions of JSON schemas: `not`, `if`, dependent keywords, as schemas with anyOf; and whether a
// given value fits a schema.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/grammar/schema/json_schema_document.h"

namespace chaski::json_schema {

class SchemaLogic : public SchemaDocument {
 public:
  using SchemaDocument::SchemaDocument;

 protected:
  // A schema of values that do not fit `schema`. It may leave some out, but `not` of types only.
  Json negation(const Json& schema, const std::string& path, int depth = 0) const;
  // The keywords that condition() replaces. `not` is one of them unless it is a list of exceptions.
  static bool is_condition(const std::string& key, const Json& value);
  // What such a keyword demands, as a schema.
  Json condition(const Json& schema, const std::string& key, const std::string& path) const;

  // What parts of strings and numbers exclude: {"anyOf": [...]} of {"enum": [...]} and of
  // {"type": "string"} with a pattern or format, or with `not` of one.
  static bool is_exceptions(const Json& value);
  static Json excluded_values(const Json& schema);  // those of its enum lists
  static Json except(const Json& condition);        // {"not": {"anyOf": [condition]}}

  bool fits(const Json& value, const Json& schema, const std::string& path, int depth = 0) const;
  // The texts that contain a match of `pattern`, or that have the format.
  std::shared_ptr<const Rules> texts_of(const std::string& key, const Json& value,
                                        const std::string& path) const;
  bool matches(const std::string& text, const std::string& key, const Json& value,
               const std::string& path) const;
  std::string pattern_of(const Json& format, const std::string& path) const;

 private:
  bool keyword_fits(const Json& value, const Json& schema, const std::string& key,
                    const std::string& path, int depth) const;
  bool object_fits(const Json& value, const Json& schema, const std::string& key,
                   const std::string& path, int depth) const;
  bool array_fits(const Json& value, const Json& schema, const std::string& key,
                  const std::string& path, int depth) const;
  bool text_fits(const std::string& text, const std::string& key, const Json& value,
                 const std::string& path) const;

  mutable std::map<std::string, std::shared_ptr<const Rules>> texts_;
};

}  // namespace chaski::json_schema
