// The keywords of JSON Schema that chaski supports, and the types of JSON values that they
// constrain.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/schema/json_schema_document.h"

namespace chaski::json_schema {

// A type of JSON values and the keywords that constrain only values of it.
struct Family {
  const char* type;
  std::vector<std::string_view> keywords;
};
const std::vector<Family>& families();

bool is_remark(std::string_view key);  // whether it constrains nothing
bool is_known(std::string_view key);
bool is_of(const Json& value, std::string_view type);
bool is_about(const Json& schema, const Family& family);

// Replaces `nullable`: it adds null to `type`, and has no effect without a type.
void settle_null(Json& schema);
// The texts of a list.
std::set<std::string> names_of(const Json& list);

}  // namespace chaski::json_schema
