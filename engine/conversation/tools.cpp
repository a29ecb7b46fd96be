#include "engine/conversation/tools.h"

#include <algorithm>

#include "engine/text/ordered_json.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"
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
constexpr std::string_view kWhiteSpace = " \t\r\n";
constexpr size_t kShown = 60;  // bytes of a damaged call, or of a text after it, in a message
constexpr int kMostNestedJson = 50;
constexpr size_t kIdLength = 9;  // of a call
constexpr std::string_view kFence = "```json";

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

// The end of the JSON value at the start of the text; npos if it does not end, or is nested deeper
// than recursive code can take. Only brackets are counted; the parser checks the rest.
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

std::string_view inside_white_space(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace),
               end = text.find_last_not_of(kWhiteSpace);
  return begin == std::string_view::npos ? "" : text.substr(begin, end + 1 - begin);
}

// The beginning of a text, for a message.
std::string quoted(std::string_view text) {
  text = inside_white_space(text);
  return fmt::format("\"{}{}\"", escaped(text.substr(0, kShown)),
                     text.size() > kShown ? "..." : "");
}

class AnswerReader {
 public:
  AnswerReader(const ToolSyntax& syntax, const Tools& tools, std::string_view answer,
               const CallIds& ids)
      : syntax_(syntax), tools_(tools), rest_(answer), ids_(ids) {}

  ToolAnswer read() {
    // A call may contain the mark of a thought, and a thought the mark of a call: the first one
    // decides.
    constexpr std::string_view kThought = "</think>";
    const auto begins_call = [&] {
      return inside_white_space(rest_).starts_with(syntax_.begins) ||
             (syntax_.bare && begins_bare_call(rest_).value_or(false));
    };
    const size_t thought = rest_.find(kThought);
    if (thought != std::string_view::npos && !begins_call()) pass(thought + kThought.size());
    if (syntax_.bare && begins_bare_call(rest_).value_or(false)) take_bare();
    for (size_t at; (at = rest_.find(syntax_.begins)) != std::string_view::npos;) {
      pass(at);
      const std::string_view whole = rest_;
      rest_.remove_prefix(syntax_.begins.size());
      if (!take_calls()) keep_read(whole);
    }
    pass(rest_.size());
    out_.content = inside_white_space(out_.content);
    return std::move(out_);
  }

 private:
  void keep(std::string_view text) { out_.content += text; }
  void keep_read(std::string_view before) { keep(before.substr(0, before.size() - rest_.size())); }
  void pass(size_t bytes) {
    keep(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
  }
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kWhiteSpace), rest_.size()));
  }
  bool take(std::string_view text) {
    const bool there = !text.empty() && rest_.starts_with(text);
    if (there) rest_.remove_prefix(text.size());
    return there;
  }

  // JSON without a key for arguments is an answer in JSON, not a call.
  void take_bare() {
    const std::string_view whole = rest_;
    if (whole.find(fmt::format("\"{}\"", syntax_.arguments)) == std::string_view::npos) return;
    rest_.remove_prefix(rest_.find('{'));
    fenced_ = inside_white_space(whole).starts_with(kFence);
    if (!take_calls()) keep_read(whole);
    fenced_ = false;
  }

  // Reads the text after a mark: objects, a list of objects, or a name and its arguments. On damage
  // it skips the damaged text and returns false.
  bool take_calls() {
    const size_t calls = out_.calls.size(), faults = out_.faults.size();
    const std::string_view before = rest_;
    skip_space();
    const bool read = take_values();
    skip_space();
    if (fenced_ && take("```")) skip_space();
    const bool followed = read && !syntax_.ends.empty() && !take(syntax_.ends) && !rest_.empty();
    if (read && !followed) return true;
    const std::string_view after = rest_;
    out_.calls.resize(calls), out_.faults.resize(faults);
    // The damaged text ends with the end mark, or before the next call.
    rest_ = before;
    const size_t end = syntax_.ends.empty() ? std::string_view::npos : rest_.find(syntax_.ends),
                 next = rest_.find(syntax_.begins);
    const std::string_view damaged =
        rest_.substr(0, std::min({end == std::string_view::npos ? end : end + syntax_.ends.size(),
                                  next, rest_.size()}));
    rest_.remove_prefix(damaged.size());
    out_.damaged = true;
    out_.cut = rest_.empty() && (syntax_.ends.empty() || !damaged.ends_with(syntax_.ends));
    const std::string call = "cannot read the tool call " + quoted(damaged);
    out_.faults.push_back(
        followed ? fmt::format("{}: the text {} follows it, expected {} or the end of the answer",
                               call, quoted(after), syntax_.ends)
                 : fmt::format("{}, expected {{\"name\": ..., \"{}\": {{...}}}}", call,
                               syntax_.arguments));
    return false;
  }

  bool take_values() {
    if (syntax_.name_first && !rest_.starts_with('[')) {  // name[ARGS]{...}
      const size_t end = rest_.find_first_of("[{");
      if (end == std::string_view::npos) return false;
      const std::string name(inside_white_space(rest_.substr(0, end)));
      rest_.remove_prefix(std::min(rest_.find('{'), rest_.size()));
      const OrderedJson arguments = value();
      return arguments.is_object() && add(name, arguments);
    }
    size_t taken = 0;
    while (rest_.starts_with('{') || (taken == 0 && rest_.starts_with('['))) {
      const OrderedJson read = value();
      if (read.is_object() && !add(read)) return false;
      if (read.is_array() && !std::all_of(read.begin(), read.end(),
                                          [&](const OrderedJson& call) { return add(call); }))
        return false;
      if (!read.is_structured() || read.empty()) return false;
      ++taken;
      skip_space();
      if (take(";")) skip_space();
    }
    return taken > 0;
  }

  // Reads the next value. A damaged value is returned as discarded, and nothing is read.
  OrderedJson value() {
    const size_t end = end_of_json(rest_);
    if (end == std::string_view::npos) return OrderedJson(OrderedJson::value_t::discarded);
    OrderedJson read = maybe_json(rest_.substr(0, end));
    if (!read.is_discarded()) rest_.remove_prefix(end);
    return read;
  }

  bool add(const OrderedJson& call) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    OrderedJson arguments = OrderedJson::object();
    for (const char* key : {"arguments", "parameters"})
      if (call.contains(key)) arguments = call[key];
    // Some models write the arguments as a string that holds JSON.
    if (arguments.is_string() && is_json_object(arguments.get_ref<const std::string&>()))
      arguments = parsed_json(arguments.get<std::string>());
    return arguments.is_object() && add(call["name"].get<std::string>(), arguments);
  }

  bool add(const std::string& name, const OrderedJson& arguments) {
    const auto& known = tools_.names();
    if (std::find(known.begin(), known.end(), name) == known.end())
      out_.faults.push_back(fmt::format("the model calls the unknown function \"{}\", expected {}",
                                        escaped(name), expected_names(name, known)));
    out_.calls.push_back({ids_.of(out_.calls.size()), name, written(arguments)});
    return true;
  }

  const ToolSyntax& syntax_;
  const Tools& tools_;
  std::string_view rest_;
  bool fenced_ = false;  // inside a code block
  const CallIds& ids_;
  ToolAnswer out_;
};

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
    const Json function = tool.has("function") ? tool["function"] : tool;
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

std::optional<bool> begins_bare_call(std::string_view answer) {
  answer = inside_white_space(answer);
  if (answer.size() < kFence.size() && kFence.starts_with(answer)) return std::nullopt;
  if (answer.starts_with(kFence)) answer = inside_white_space(answer.substr(kFence.size()));
  return answer.empty() ? std::nullopt : std::optional(answer[0] == '{');
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

ToolAnswer read_answer(const ToolSyntax& syntax, const Tools& tools, std::string_view answer,
                       const CallIds& ids) {
  return AnswerReader(syntax, tools, answer, ids).read();
}

}  // namespace chaski
