#include "main/flags/values.h"

#include <fmt/format.h>

#include <map>

#include "engine/shelf/shelf.h"
#include "main/flags/flags.h"

namespace chaski {

namespace {

// Path of a model -> the name that the user typed.
std::map<std::string, std::string>& names_of_models() {
  static std::map<std::string, std::string> names;
  return names;
}

}  // namespace

std::optional<int> whole_of(const std::string& text) {
  const int times = text.ends_with('k') || text.ends_with('K')   ? 1 << 10
                    : text.ends_with('m') || text.ends_with('M') ? 1 << 20
                                                                 : 1;
  const auto value = number_of<int>(text.substr(0, text.size() - (times > 1)));
  int product;
  if (!value || __builtin_mul_overflow(*value, times, &product)) return std::nullopt;
  return product;
}

std::string refusal(const std::string& text, const std::string& expected) {
  return fmt::format("is \"{}\", expected {}", text, expected);
}

std::string path_of_named_model(const std::string& name) {
  const std::string path = path_of_model(name);
  if (path != name) names_of_models()[path] = name;
  return path;
}

std::string with_name_of_model(const std::string& line) {
  for (const auto& [path, name] : names_of_models())
    if (line.starts_with(path + ": ")) return name + line.substr(path.size());
  return line;
}

uint64_t whole_number(const std::string& flag, const std::string& text,
                      const std::string& otherwise) {
  const auto value = number_of<uint64_t>(text);
  if (!value)
    wrong_flag(flag, refusal(text, fmt::format("{}a number from 0 to {}", otherwise, UINT64_MAX)));
  return *value;
}

}  // namespace chaski
