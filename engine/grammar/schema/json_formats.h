// The formats of strings in JSON schemas, as regular expressions.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace chaski::json_schema {

// Every text that the expression matches from its begin to its end has the format.
std::optional<std::string> pattern_of_format(std::string_view format);
std::string format_names();

}  // namespace chaski::json_schema
