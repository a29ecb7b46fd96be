// The template language against Python's Jinja as transformers runs it
// (scripts/golden_templates.py): every template with every conversation, byte for byte, and an
// error where there is one. Then what Python does not have: origins of characters, budgets, lines
// of errors.
#include <ctime>
#include <nlohmann/json.hpp>

#include "engine/text/jinja.h"
#include "ggml-like-tensor/base/error.h"
#include "tests/support.h"

using namespace chaski;
using namespace chaski::test;
using jinja::Value;
using nlohmann::ordered_json;

namespace {

constexpr std::time_t kNow = 1772719629;  // 2026-03-05 14:07:09

jinja::Budget unlimited = jinja::Budget::unlimited();

// What a conversation says comes from outside, whatever it is.
Value value_of(const ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return Value::text(unlimited, json.get<std::string>(), jinja::kFromOutside);
  if (json.is_array()) {
    jinja::Values items;
    for (const auto& item : json) items.push_back(value_of(item));
    return Value::list(unlimited, std::move(items));
  }
  if (!json.is_object()) return {};
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : json.items())
    items.emplace_back(Value::text(unlimited, key), value_of(value));
  return Value::dict(unlimited, std::move(items));
}

jinja::Names names_of(const ordered_json& conversation) {
  jinja::Names out = {{"tools", {}}, {"documents", {}}};
  for (const auto& [key, value] : conversation.items()) {
    if (key == "what") continue;
    std::erase_if(out, [&](const auto& name) { return name.first == key; });
    out.emplace_back(key, value_of(value));
  }
  out.emplace_back("bos_token", Value::text(unlimited, "<s>"));
  out.emplace_back("eos_token", Value::text(unlimited, "</s>"));
  return out;
}

// The text, or nothing if there is an error.
std::optional<std::string> rendered(const std::string& source, const jinja::Names& names = {}) {
  try {
    return jinja::utf8(jinja::Template(source, "test").render(names, kNow));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string error(const std::string& source, const jinja::Names& names = {}) {
  return error_of([&] { jinja::Template(source, "test").render(names, kNow); }).what();
}

std::vector<std::pair<std::string, std::string>> templates_in(const std::string& text) {
  const std::string mark = "===== ";
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t at = text.find(mark); at < text.size();) {
    const size_t line = text.find('\n', at), next = std::min(text.find(mark, line), text.size());
    out.emplace_back(text.substr(at + mark.size(), line - at - mark.size()),
                     text.substr(line + 1, next - line - 1));
    at = next;
  }
  return out;
}

}  // namespace

TEST_CASE("template: rendered as transformers renders") {
  setenv("TZ", "UTC", 1);
  const auto templates = templates_in(read_file(golden("templates/templates.txt")));
  const auto conversations = ordered_json::parse(read_file(golden("templates/conversations.json")));
  const auto expected = ordered_json::parse(read_file(golden("templates/rendered.json")));
  CHECK_GE(templates.size(), 60);
  CHECK_EQ(conversations.size(), 12);
  for (const auto& [name, source] : templates) {
    CAPTURE(name);
    for (size_t i = 0; i < conversations.size(); ++i) {
      CAPTURE(i);
      const auto ours = rendered(source, names_of(conversations[i]));
      const ordered_json& theirs = expected.at(name).at(i);
      if (theirs.is_null())
        CHECK_MESSAGE(!ours, ours.value_or(""));
      else if (ours)
        CHECK_EQ(*ours, theirs.get<std::string>());
      else
        CHECK_EQ(error(source, names_of(conversations[i])), theirs.get<std::string>());
    }
  }
}
