#include "engine/conversation/call_reader.h"

#include <algorithm>

#include "engine/text/ordered_json.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"

namespace chaski {

namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";
constexpr size_t kShown = 60;  // bytes of a damaged call, or of a text after it, in a message
constexpr std::string_view kFence = "```json";

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

class CallReader {
 public:
  CallReader(const ToolSyntax& syntax, const Tools& tools, std::string_view answer,
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
      out_.faults.push_back(fmt::format("the model calls the unknown function {}, expected {}",
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

std::optional<bool> begins_bare_call(std::string_view answer) {
  answer = inside_white_space(answer);
  if (answer.size() < kFence.size() && kFence.starts_with(answer)) return std::nullopt;
  if (answer.starts_with(kFence)) answer = inside_white_space(answer.substr(kFence.size()));
  return answer.empty() ? std::nullopt : std::optional(answer[0] == '{');
}

ToolAnswer read_calls(const ToolSyntax& syntax, const Tools& tools, std::string_view answer,
                      const CallIds& ids) {
  return CallReader(syntax, tools, answer, ids).read();
}

}  // namespace chaski
