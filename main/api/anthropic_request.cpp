#include "main/api/anthropic_request.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/shelf/inspection.h"  // for expected_names()
#include "main/api/changing_lines.h"

namespace chaski {

namespace {

// A text, or blocks of text with an empty line between two.
std::string read_blocks(const Field& content) {
  if (content.is_text()) return content.text();
  if (!content.is_list()) content.wrong("a text or a list of blocks");
  std::string all;
  for (const Field& block : content.items()) {
    const std::string type = block["type"].text();
    if (type != "text")
      block["type"].refuse("is " + escaped(type) + ", expected text: the model reads text only");
    if (!all.empty()) all += "\n\n";
    all += block["text"].text();
    block.accept({"cache_control", "citations"});
  }
  return all;
}

// Messages of Anthropic's form. A result of a tool is a block of a user's message there, and a
// message of its own here. Messages of one role that follow each other are one message.
class MessageReader {
 public:
  std::vector<ChatMessage> read(const Field& messages) {
    const std::vector<Field> items = messages.items();
    for (const Field& message : items) {
      const std::string role = message["role"].one_of({"user", "assistant", "system"});
      const Field content = message["content"];
      if (content.is_text())
        add_text(role, content.text());
      else
        for (const Field& block : content.items()) read_block(role, block);
      thought_.clear();
    }
    if (std::ranges::count(all_, "user", &ChatMessage::role) == 0)
      messages.refuse("has no message of a user with a text, expected at least one");
    return std::move(all_);
  }

 private:
  void read_block(const std::string& role, const Field& block) {
    const std::string type = block["type"].text();
    block.accept({"cache_control", "citations"});
    if (type == "text") return add_text(role, block["text"].text());
    if (role == "assistant" && type == "thinking") {
      thought_ += block["thinking"].text();
      return block.accept({"signature"});
    }
    if (role == "assistant" && type == "redacted_thinking") return block.accept({"data"});
    if (role == "assistant" && type == "tool_use") return read_use(block);
    if (role == "user" && type == "tool_result") return read_result(block);
    block["type"].refuse("is " + escaped(type) + ", expected " +
                         (role == "user"        ? "text or tool_result"
                          : role == "assistant" ? "text, thinking or tool_use"
                                                : "text") +
                         ": the model reads text only");
  }
  void read_use(const Field& block) {
    ToolCall call{block["id"].text(), block["name"].text(), ""};
    const Field input = block["input"];
    if (!input.is_object()) input.wrong("an object");
    call.arguments = written(input.whole_json());
    block.accept({"caller"});
    names_[call.id] = call.name;
    message_of("assistant").calls.push_back(std::move(call));
  }
  void read_result(const Field& block) {
    ChatMessage result{"tool", ""};
    if (const auto content = block.find("content")) result.content = read_blocks(*content);
    if (const auto failed = block.find("is_error"); failed && failed->flag())
      result.content = "Error: " + result.content;
    result.call_id = block["tool_use_id"].text();
    const auto name = names_.find(result.call_id);
    if (name == names_.end())
      block["tool_use_id"].refuse("is " + escaped(result.call_id) +
                                  ", but no earlier tool_use block has this id");
    result.name = name->second;
    all_.push_back(std::move(result));
  }
  void add_text(const std::string& role, const std::string& text) {
    const bool new_message = all_.empty() || all_.back().role != role;
    ChatMessage& message = message_of(role);
    if (role != "assistant" && !new_message) message.content += "\n\n";
    message.content += text;
  }
  ChatMessage& message_of(const std::string& role) {
    if (all_.empty() || all_.back().role != role) all_.push_back({role, ""});
    ChatMessage& message = all_.back();
    if (role == "assistant" && !thought_.empty())
      message.content = with_thought(std::exchange(thought_, ""), message.content);
    return message;
  }

  std::vector<ChatMessage> all_;
  std::map<std::string, std::string> names_;  // of the functions, by the id of a call
  std::string thought_;
};

// Adds the system message in front, and the dates of it to the first question.
void add_system(const Api& api, const Field& fields, Body& body,
                std::vector<ChatMessage>& messages) {
  const auto system = fields.find("system");
  if (!system) return;
  SteadySystem steady = steady_system(read_blocks(*system), api.move_dates);
  for (std::string& note : steady.notes) body.warn(std::move(note));
  if (!steady.dates.empty()) {
    ChatMessage& first = *std::ranges::find(messages, "user", &ChatMessage::role);
    first.content = steady.dates + "\n" + first.content;
  }
  if (!steady.text.empty()) messages.insert(messages.begin(), {"system", steady.text});
}

OrderedJson openai_tool(const Field& tool) {
  if (const auto type = tool.find("type"); type && type->text() != "custom")
    type->refuse("is " + escaped(type->text()) +
                 ", expected custom: chaski runs no tools of its own");
  OrderedJson function = {{"name", tool["name"].text()}};
  if (const auto description = tool.find("description"))
    function["description"] = description->text();
  const Field schema = tool["input_schema"];
  if (!schema.is_object()) schema.wrong("a JSON schema");
  function["parameters"] = schema.whole_json();
  tool.accept({"cache_control", "strict", "input_examples", "eager_input_streaming",
               "allowed_callers", "defer_loading"});
  return {{"type", "function"}, {"function", function}};
}

void read_anthropic_tools(const Field& fields, ChatRequest& request) {
  const auto tools = fields.find("tools");
  OrderedJson list = OrderedJson::array();
  if (tools)
    for (const Field& tool : tools->items()) list.push_back(openai_tool(tool));
  if (!list.empty()) {
    try {
      request.tools.tools = Tools::parse("tools", written(list));
    } catch (const Error& error) {
      throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), "tools");
    }
  }
  const auto choice = fields.find("tool_choice");
  if (!choice) return;
  const std::vector<std::string>& names = request.tools.tools.names();
  const std::string type = (*choice)["type"].one_of({"auto", "any", "tool", "none"});
  if (const auto one = choice->find("disable_parallel_tool_use"))
    request.parallel_calls = !one->flag();
  if (type == "none") return void(request.tools = {});
  if (type == "any" && names.empty())
    (*choice)["type"].refuse("is any, but the request has no tools");
  request.tools.choice = type == "any" ? "required" : "auto";
  if (type != "tool") return expect_enforceable(list, request, "input_schema");
  const Field name = (*choice)["name"];
  request.tools.choice = name.text();
  if (std::ranges::count(names, request.tools.choice) == 0)
    name.wrong(names.empty() ? "no name: the request has no tools"
                             : expected_names(request.tools.choice, names));
  expect_enforceable(list, request, "input_schema");
}

void read_anthropic_thinking(const Field& fields, ChatRequest& request) {
  const auto thinking = fields.find("thinking");
  if (!thinking) return;
  request.thinks = (*thinking)["type"].one_of(
                       {"enabled", "adaptive", "between_tools", "disabled"}) != "disabled";
  thinking->accept({"budget_tokens", "display"});  // ignored: the model chooses how long to think
}

// Answers in JSON, by the names of several versions of the interface.
void read_output(const Field& fields, AnswerSettings& settings) {
  const auto read_format = [&](const Field& format) {
    format["type"].one_of({"json_schema"});
    constrain_to_schema(format["schema"], settings);
  };
  if (const auto format = fields.find("output_format")) read_format(*format);
  const auto config = fields.find("output_config");
  if (!config) return;
  if (const auto format = config->find("format")) read_format(*format);
  config->accept({"effort"});
}

}  // namespace

ChatRequest read_anthropic(const Api& api, const DefaultSettings& defaults, Body& body) {
  const Field fields = body.fields();
  ChatRequest request;
  request.thinks = defaults.thinks;
  request.messages = MessageReader().read(fields["messages"]);
  add_system(api, fields, body, request.messages);
  read_anthropic_tools(fields, request);
  read_anthropic_thinking(fields, request);
  return request;
}

void read_anthropic_settings(const Api& api, const DefaultSettings& defaults, const Field& fields,
                             ChatRequest& request) {
  request.settings = read_settings(fields, defaults);
  if (const auto stops = fields.find("stop_sequences"))
    read_stops(*stops, request.settings.request);
  read_output(fields, request.settings);
  limit_tokens(api, request.settings);
  fields.accept({"metadata", "service_tier", "context_management", "betas", "inference_geo",
                 "cache_control", "speed", "user_profile_id", "workspace_id", "diagnostics"});
  expect_only(fields, "container", nullptr);
  expect_only(fields, "mcp_servers", OrderedJson::array());
}

}  // namespace chaski
