#include "engine/conversation/tools.h"

#include <algorithm>

#include "engine/text/ordered_json.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/sha256.h"
#include "models/import/json_file.h"

namespace chaski {

namespace {

// The first row that fits is used, so special spellings come before general ones.
constexpr ToolSyntax kSyntaxes[] = {
    // gpt-oss, whose calls Channels spells in the common way
    {.mark = "<|channel|>",
     .begins = "<tool_call>",
     .ends = "</tool_call>",
     .can_be_forced = false},
    {.mark = "<tool_call>",
     .begins = "<tool_call>",
     .ends = "</tool_call>",
     .opens = "<tool_call>\n",
     .closes = "\n</tool_call>",
     .bare = true},  // as Qwen2.5-Coder writes
    {.mark = "[ARGS]", .begins = "[TOOL_CALLS]", .name_first = true, .can_be_forced = false},
    {.mark = "[TOOL_CALLS]", .begins = "[TOOL_CALLS]", .opens = "[TOOL_CALLS][", .closes = "]"},
    {.mark = "<|tool_call|>", .begins = "<|tool_call|>", .opens = "<|tool_call|>[", .closes = "]"},
    {.mark = "<|start_header_id|>",
     .begins = "<|python_tag|>",
     .arguments = "parameters",
     .bare = true},
};
// Families whose calls are not JSON, or are in another place, although a mark above fits.
constexpr std::string_view kOthers[] = {"<function=", "<arg_key>", "<tool_sep>"};
constexpr int kMostNestedJson = 50;
constexpr size_t kIdLength = 9;  // of a call

jinja::Value value_of(const OrderedJson& json, jinja::Budget& budget) {
  const auto text = [&](const std::string& s) {
    return jinja::Value::text(budget, s, jinja::kFromOutside);
  };
  if (json.is_boolean()) return json.get<bool>();
  // Integers beyond int64 become floats, as in other JSON readers.
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return text(json.get<std::string>());
  if (json.is_array()) {
    jinja::Values items;
    for (const OrderedJson& item : json) items.push_back(value_of(item, budget));
    return jinja::Value::list(budget, std::move(items));
  }
  if (!json.is_object()) return {};
  std::vector<std::pair<jinja::Value, jinja::Value>> items;
  for (const auto& [key, value] : json.items())
    items.emplace_back(text(key), value_of(value, budget));
  return jinja::Value::dict(budget, std::move(items));
}

// A function is described directly, or as the member "function" of an object.
bool is_wrapped(const OrderedJson& tool) {
  return tool.contains("function") && tool["function"].is_object();
}
const OrderedJson& function_of(const OrderedJson& tool) {
  return is_wrapped(tool) ? tool["function"] : tool;
}

// Adjusts the references of a schema that is moved into another schema, to the place `to`.
void move_references(OrderedJson& schema, const std::string& to) {
  if (schema.is_object() && schema.contains("$ref") && schema["$ref"].is_string())
    if (const std::string ref = schema["$ref"]; ref.starts_with('#'))
      schema["$ref"] = "#" + to + ref.substr(1);
  if (schema.is_structured())
    for (OrderedJson& inner : schema) move_references(inner, to);
}

}  // namespace

CallIds::CallIds(std::span<const std::byte> prompt, uint64_t seed) {
  Sha256 sum;
  sum.add(prompt);
  sum.add(std::as_bytes(std::span(&seed, 1)));
  first_ = std::stoull(sum.finish().substr(0, 16), nullptr, 16);
}

std::string CallIds::of(size_t call) const {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  uint64_t rest = first_ + call;
  std::string id(kIdLength, '0');
  for (char& c : id) c = kLetters[rest % kLetters.size()], rest /= kLetters.size();
  return id;
}

bool same_json(std::string_view a, std::string_view b) {
  const OrderedJson one = maybe_json(a), other = maybe_json(b);
  return !one.is_discarded() && one == other;
}

size_t end_of_json(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMostNestedJson) return std::string_view::npos;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

bool is_json_object(std::string_view text) {
  return text.starts_with('{') && end_of_json(text) == text.size() && OrderedJson::accept(text);
}

Tools Tools::parse(const std::string& file, const std::string& text) {
  Tools out;
  out.text_ = text;
  const Json list = parse_json(file, text);
  if (!list.is_array() || list.size() == 0) list.wrong("a list of functions, at least one");
  list.each([&](const Json& tool) {
    if (tool.has("type") && tool["type"].str() != "function") tool["type"].wrong("\"function\"");
    // {"type": "function"} without the rest: the inner object is missing, not its name.
    const bool wrapped = tool.has("function") || (tool.has("type") && !tool.has("name"));
    const Json function = wrapped ? tool["function"] : tool;
    const std::string name = function["name"].str();
    if (name.empty()) function["name"].wrong("a name");
    if (std::find(out.names_.begin(), out.names_.end(), name) != out.names_.end())
      function["name"].wrong("a name that is not used yet");
    if (function.has("parameters") && !function["parameters"].is_object())
      function["parameters"].wrong("a JSON schema of an object");
    out.names_.push_back(name);
  });
  return out;
}

jinja::Value Tools::value() const {
  if (empty()) return {};
  jinja::Budget budget = jinja::Budget::unlimited();
  OrderedJson list = parsed_json(text_);
  for (OrderedJson& tool : list)
    if (!is_wrapped(tool)) tool = {{"type", "function"}, {"function", tool}};
  return value_of(list, budget);
}

std::string Tools::indented() const { return empty() ? "" : written(parsed_json(text_), 2); }

std::string Tools::lines() const {
  std::string all;
  for (const OrderedJson& tool : parsed_json(text_)) all += written(function_of(tool)) + "\n";
  return all;
}

std::string Tools::schema_of_call(std::string_view name, std::string_view arguments) const {
  const OrderedJson list = parsed_json(text_);
  OrderedJson calls = OrderedJson::array();
  for (const OrderedJson& tool : list) {
    const OrderedJson& function = function_of(tool);
    if (!name.empty() && function["name"] != name) continue;
    OrderedJson parameters = function.contains("parameters") && function["parameters"].is_object()
                                 ? function["parameters"]
                                 : OrderedJson{{"type", "object"}};
    move_references(parameters, fmt::format("/anyOf/{}/properties/{}", calls.size(), arguments));
    calls.push_back(
        {{"type", "object"},
         {"properties",
          {{"name", {{"const", function["name"]}}}, {std::string(arguments), parameters}}},
         {"required", {"name", std::string(arguments)}},
         {"additionalProperties", false}});
  }
  return written({{"anyOf", calls}});
}

jinja::Value value_of_json(const std::string& json) {
  jinja::Budget budget = jinja::Budget::unlimited();
  return value_of(parsed_json(json), budget);
}

jinja::Value value_of_call(const ToolCall& call) {
  jinja::Budget budget = jinja::Budget::unlimited();
  const OrderedJson arguments = maybe_json(call.arguments);
  return value_of({{"type", "function"},
                   {"id", call.id},
                   {"function", {{"name", call.name}, {"arguments", arguments}}}},
                  budget);
}

const ToolSyntax* tool_syntax(std::string_view chat_template) {
  const auto has = [&](std::string_view mark) {
    return chat_template.find(mark) != std::string_view::npos;
  };
  if (std::any_of(std::begin(kOthers), std::end(kOthers), has)) return nullptr;
  const auto at = std::find_if(std::begin(kSyntaxes), std::end(kSyntaxes),
                               [&](const ToolSyntax& syntax) { return has(syntax.mark); });
  return at == std::end(kSyntaxes) ? nullptr : at;
}

const ToolSyntax& common_tool_syntax() { return *tool_syntax("<tool_call>"); }

}  // namespace chaski
