#include "engine/conversation/tool_calling.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "engine/conversation/own_template.h"
#include "engine/grammar/schema/json_schema.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

const std::string
    kBefore =
        "You may call functions. Each line describes one, with a JSON schema of its "
        "parameters:\n",
    kAfter =
        "To call a function, answer only with\n<tool_call>\n{\"name\": \"the function\", "
        "\"arguments\": {...}}\n</tool_call>\nIts result comes with the next message, between "
        "<tool_response> and </tool_response>. If no function helps, answer with text.";

std::string text_of(const ToolCall& call, const ToolSyntax& syntax) {
  return fmt::format("{}{{\"name\": \"{}\", \"{}\": {}}}{}", syntax.opens, call.name,
                     syntax.arguments, call.arguments, syntax.closes);
}

}  // namespace

ToolCalling::ToolCalling(const ToolOptions& options, const ChatTemplate& format,
                         std::string_view template_text, const Tokenizer& tokenizer,
                         const std::string& model) {
  if (options.tools.empty()) return;
  syntax_ = tool_syntax(template_text);
  if (!format.own() || !format.own()->takes_tools()) {
    if (!options.may_describe)
      fail(Exit::usage,
           "{}: its chat template does not show tools to the model, expected a model trained to "
           "call tools",
           model);
    syntax_ = &common_tool_syntax();
    description_ = kBefore + options.tools.lines() + kAfter;
    notice_ = model + ": its chat template does not show tools, so the system message does";
  }
  const bool forces = options.choice != "auto";
  if (forces && (!syntax_ || !syntax_->can_be_forced))
    fail(Exit::usage,
         "{}: chaski cannot force calls in the form that this chat template uses, expected "
         "--tool-choice auto",
         model);
  if (!syntax_) {
    notice_ = model + ": the form of tool calls in this chat template is unknown, calls stay text";
    return;
  }
  for (const std::string_view mark : {syntax_->begins, syntax_->ends, std::string_view("[ARGS]")})
    if (const auto token = tokenizer.find(mark); token && tokenizer.is_control(*token))
      spelled_.push_back(*token);
  if (!forces) return;
  const std::string schema = options.tools.schema_of_call(
      options.choice == "required" ? "" : options.choice, syntax_->arguments);
  forced_ = parse_json_schema({"--tools", schema, Exit::bad_file});
}

std::vector<ChatMessage> ToolCalling::shown(std::span<const ChatMessage> messages,
                                            std::vector<size_t>* sources) const {
  std::vector<size_t> from = {0};
  if (description_.empty()) {
    from.resize(messages.size());
    std::iota(from.begin(), from.end(), 0);
    if (sources) *sources = std::move(from);
    return {messages.begin(), messages.end()};
  }
  std::vector<ChatMessage> all = {{"system", description_}};
  bool after_result = false;  // results of several calls are one message
  for (const ChatMessage& m : messages) {
    const bool is_result = m.role == "tool";
    if (m.role == "system" && &m == messages.data()) {
      all[0].content = m.content + "\n\n" + description_;
    } else if (is_result) {
      const std::string result = "<tool_response>\n" + m.content + "\n</tool_response>";
      if (after_result)
        all.back().content += "\n" + result;
      else
        all.push_back({"user", result});
    } else {
      all.push_back(m);
      for (const ToolCall& call : std::exchange(all.back().calls, {}))
        all.back().content += (all.back().content.empty() ? "" : "\n") + text_of(call, *syntax_);
    }
    after_result = is_result;
    if (from.size() < all.size()) from.push_back(size_t(&m - messages.data()));
  }
  if (sources) *sources = std::move(from);
  return all;
}

}  // namespace chaski
