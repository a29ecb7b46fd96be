#include "engine/grammar/schema/json_schema_document.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "engine/grammar/reader.h"

namespace chaski::json_schema {

SchemaDocument::SchemaDocument(const GrammarSource& source) : source_(source), root_(read()) {}

Json SchemaDocument::read() const {
  std::vector<std::set<std::string>> names;
  expect_size(source_);
  const auto check = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::array_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end)
      names.pop_back();
    if (names.size() > size_t(kMostNested))
      fail(source_.code, "{}: JSON is nested more than {} deep", source_.name, kMostNested);
    if (event == Json::parse_event_t::key) {
      const auto name = parsed.get<std::string>();
      if (!names.back().insert(name).second)
        fail(source_.code, "{}: key {} appears twice in one object", source_.name, escaped(name));
      if (names.back().size() > kMostMembers)
        fail(source_.code, "{}: an object with more than {} members", source_.name, kMostMembers);
    }
    return true;
  };
  try {
    Json json = Json::parse(source_.text, check);
    expect_exact_integers();
    return json;
  } catch (const Json::parse_error& error) {
    source_.expected(std::min(source_.text.size(), std::max<size_t>(error.byte, 1) - 1), "JSON");
  } catch (const Json::exception&) {
    fail(source_.code, "{}: JSON has a number beyond the range of a double", source_.name);
  }
}

// The JSON reader makes a double of an integer that has more than 64 bits.
void SchemaDocument::expect_exact_integers() const {
  const std::string& text = source_.text;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      in_string = !in_string;
    if (in_string || i >= text.size() || text[i] < '0' || text[i] > '9') continue;
    const size_t begin = i;
    i = std::min(text.find_first_not_of("0123456789.eE+-", i), text.size());
    const std::string number = text.substr(begin, i - begin);
    const char* most =
        begin > 0 && text[begin - 1] == '-' ? "9223372036854775808" : "18446744073709551615";
    const bool more =
        number.size() == std::strlen(most) ? number > most : number.size() > std::strlen(most);
    if (more && number.find_first_not_of("0123456789") == number.npos)
      source_.wrong(begin, fmt::format("found {}, expected an integer of 64 bits", number));
    --i;
  }
}

std::string SchemaDocument::shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  const std::string text = spelled(value);
  return escaped(text.substr(0, 60)) + (text.size() > 60 ? "..." : "");
}

void SchemaDocument::spend(size_t work, const std::string& path) const {
  work_ += std::min(work, kMostWork);
  if (work_ > kMostWork)
    wrong(path,
          "the schema needs more than {} MB of work, expected fewer nested $ref, allOf, anyOf "
          "and oneOf",
          kMostWork >> 20);
}

size_t SchemaDocument::weight(const Json& value) {
  size_t sum = kValueWork;
  if (value.is_string()) sum += value.get_ref<const std::string&>().size();
  if (value.is_array())
    for (const Json& v : value) sum += weight(v);
  if (value.is_object())
    for (const auto& [key, v] : value.get_ref<const Json::object_t&>())
      sum += key.size() + weight(v);
  return sum;
}

std::string SchemaDocument::reference(const Json& schema, const std::string& path) const {
  const Json& to = schema["$ref"];
  if (!to.is_string() || !to.get<std::string>().starts_with('#'))
    wrong(path, "$ref is {}, expected a location in this schema: #/$defs/NAME", shown(to));
  return to.get<std::string>();
}

const Json& SchemaDocument::target(const std::string& to, const std::string& path) const {
  std::string pointer;  // $ref may write a character as %41
  for (size_t i = 1; i < to.size(); ++i) {
    unsigned code = 0;
    if (to[i] == '%' && i + 2 < to.size() && std::sscanf(&to[i + 1], "%2x", &code) == 1)
      pointer += char(code), i += 2;
    else
      pointer += to[i];
  }
  try {
    return root_.at(Json::json_pointer(pointer));
  } catch (const Json::exception&) {
    wrong(path, "$ref is {}, expected a location in this schema: #/$defs/NAME", escaped(to));
  }
}

void SchemaDocument::expect_list(const Json& value, const std::string& path) const {
  if (value.is_array() && value.empty()) wrong(path, "is empty, expected at least one entry");
  if (!value.is_array())
    wrong(path, "is {}, expected a list with at least one entry", shown(value));
}

}  // namespace chaski::json_schema
