// Several JSON schemas that all hold, as one schema; and whether two schemas exclude each other.
#pragma once
#include <string>
#include <vector>

#include "engine/grammar/schema/decimal_range.h"
#include "engine/grammar/schema/json_schema_logic.h"

namespace chaski::json_schema {

// Thrown for a schema that no value fits. A choice then leaves this alternative out.
struct NothingFits {
  std::string why;  // empty: the schema says so itself, by false
};

class SchemaMerger : public SchemaLogic {
 public:
  using SchemaLogic::SchemaLogic;

 protected:
  // The schema together with all schemas that it refers to: without $ref, allOf, const
  // and conditions.
  Json flat(const Json& schema, const std::string& path, int depth = 0) const;
  // One schema for values that fit both. Both are flat.
  Json merged(Json a, Json b, const std::string& path) const;
  // Whether it is certain that no value fits both. Both are flat.
  bool apart(const Json& a, const Json& b, const std::string& path, int depth) const;
  // For each schema whether it has an enum; false for all if two of these share a value.
  std::vector<bool> listed_apart(const std::vector<Json>& options, const std::string& path) const;

  // Checks the values of keywords on which merged() relies.
  void expect_kind(const std::string& key, const Json& value, const std::string& path) const;
  void expect_types(const Json& said, const std::string& path) const;
  void expect_names(const Json& value, const std::string& path) const;

  // The types that `type` and `nullable` or `enum` allow; all types without these.
  std::vector<std::string> said_types(const Json& schema, const std::string& path) const;
  // The same, but a schema without `type` means the types that its keywords constrain.
  std::vector<std::string> types_of(const Json& schema, const std::string& path) const;
  Decimal step(const Json& value, const std::string& path) const;  // the value of multipleOf

 private:
  Json both(const Json& a, const Json& b, const std::string& path) const;
  Json common_step(const Decimal& a, const Decimal& b, const std::string& path) const;
  // additionalProperties of `from` also constrains properties that only `to` names.
  void spread_additional(const Json& from, Json& to, const std::string& path) const;
};

}  // namespace chaski::json_schema
