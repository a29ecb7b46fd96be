// JSON with its members in the order of the text, by nlohmann's library. Reading and writing take
// about a second to compile, so they are compiled once, here.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace chaski {

using OrderedJson = nlohmann::ordered_json;

// Throws OrderedJson::parse_error if the text is not JSON.
OrderedJson parsed_json(std::string_view text);
// A value that is_discarded() if the text is not JSON.
OrderedJson maybe_json(std::string_view text);

// On one line, or in lines indented by `indent` spaces a level. Bytes that are not UTF-8 become
// U+FFFD.
std::string written(const OrderedJson& json, int indent = -1);
// The same, but throws OrderedJson::type_error for bytes that are not UTF-8.
std::string written_exactly(const OrderedJson& json, int indent = -1);

}  // namespace chaski
