#include "main/flags/values.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <vector>

#include "engine/session/engine.h"  // for Error
#include "engine/shelf/shelf.h"
#include "engine/shelf/short_names.h"
#include "main/flags/flags.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

// Path of a model -> the name that the user typed.
std::map<std::string, std::string>& names_of_models() {
  static std::map<std::string, std::string> names;
  return names;
}

// A part of a name that the user typed -> the name of the model.
std::map<std::string, std::string>& models_taken() {
  static std::map<std::string, std::string> names;
  return names;
}

}  // namespace

std::string small(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

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

uint64_t bytes_of(const char* flag, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = small(end);
  if (unit.size() == 2 && unit[1] == 'b') unit.pop_back();
  const double times = unit.empty()  ? 1
                       : unit == "k" ? 1e3
                       : unit == "m" ? 1e6
                       : unit == "g" ? 1e9
                                     : 0;
  if (!(number * times >= 1 && number * times < 1e15))
    fail(Exit::usage, "{} is {}, expected a number of bytes such as 90000000, 180M or 1.5G", flag,
         escaped(text));
  return uint64_t(number * times);
}

std::pair<std::string, std::string> name_and_model(const std::string& text) {
  std::error_code none;
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || std::filesystem::exists(text, none)) return {"", text};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::string rewrite_whole(std::string& text, int least, int most) {
  const auto value = whole_of(text);
  if (!value || *value < least || *value > most)
    return refusal(text, fmt::format("a number from {} to {}{}", least, most,
                                     most > 1 << 20 ? ", such as 4096, 4k or 1M" : ""));
  text = std::to_string(*value);
  return {};
}
std::string expect_real(const std::string& text) {
  const auto value = number_of<double>(text);
  return value && std::isfinite(*value) ? std::string() : refusal(text, "a decimal number");
}

std::string path_of_named_model(const std::string& name) {
  std::error_code none;
  if (name.empty() || name[0] == '/' || name[0] == '.' || std::filesystem::exists(name, none) ||
      !name_and_model(name).first.empty())
    return name;
  const FoundModel found = find_model(name);
  if (!found.path.empty()) {
    names_of_models()[found.path] = name;
    if (found.by_part) models_taken()[name] = found.name;
    return found.path;
  }
  return name;
}

void refuse_missing_model(const std::string& name, const std::string& advice) {
  fail(Exit::io, "{} is neither a file nor a model on this machine; {}", name, advice);
}

void refuse_missing_model(const ShortName& model) {
  refuse_missing_model(model.name,
                       fmt::format("chaski pull {} downloads it ({})", model.name, model.about()));
}

namespace {

// The short names with this part, of models that can be used here.
std::string names_to_pull(const std::string& part, WantedModel wanted) {
  constexpr size_t kLeast = 3;  // a shorter part is in names that have nothing to do with it
  std::vector<std::string> names;
  for (const ShortName& one : short_names())
    if (part.size() >= kLeast && small(one.name).find(small(part)) != std::string::npos &&
        !*one.other_kind &&
        (wanted == WantedModel::any || !std::string_view(one.good_for).starts_with("embeddings")))
      names.emplace_back(one.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void refuse_unknown_model(const std::string& text, WantedModel wanted) {
  namespace fs = std::filesystem;
  std::error_code none;
  const std::string ending = fs::path(text).extension();
  if (text.empty() || text.find('/') != std::string::npos || fs::exists(text, none) ||
      ending == ".gguf" || ending == ".quipu" || ending == ".bin")
    return;
  const std::string nearest = nearest_models(text, wanted), pulled = names_to_pull(text, wanted);
  std::string advice =
      nearest.empty() ? "" : "the nearest names are " + nearest + " (chaski list shows all)";
  if (!pulled.empty())
    advice +=
        (nearest.empty() ? "" : "; ") + ("chaski pull NAME downloads one of these: " + pulled);
  refuse_missing_model(text, advice.empty() ? "chaski pull smollm2 downloads a small one" : advice);
}

void put_models_taken() {
  for (const auto& [part, name] : models_taken())
    put_notice(fmt::format("the name {} matches the model {}, which is used", part, name));
}

std::string with_name_of_model(const std::string& line) {
  for (const auto& [path, name] : names_of_models())
    if (line.starts_with(path + ": ") || line.starts_with(path + " "))
      return name + line.substr(path.size());
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
