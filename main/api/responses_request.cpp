#include "main/api/responses_request.h"

#include <algorithm>
#include <utility>

namespace chaski {

namespace {

constexpr int kMostTopLogProbabilities = 20;

// The messages of "input". Calls become part of the answer before them, thoughts of the one after.
class InputReader {
 public:
  explicit InputReader(std::vector<ChatMessage>& messages) : messages_(messages) {}

  void read(const Field& input) {
    if (input.is_text()) return messages_.push_back({"user", input.text()});
    for (const Field& item : input.items()) read_item(item);
  }

 private:
  void read_item(const Field& item) {
    const auto type = item.find("type");
    const std::string kind =
        type ? type->one_of({"message", "function_call", "function_call_output", "reasoning"})
             : "message";
    item.accept({"id", "status", "phase"});
    if (kind == "message") return read_message(item);
    if (kind == "reasoning") return read_thought(item);
    if (kind == "function_call_output") return read_result(item);
    ToolCall call{item["call_id"].text(), item["name"].text(), item["arguments"].text()};
    if (!is_json_object(call.arguments)) item["arguments"].wrong("a JSON object");
    ChatMessage& message = answer();
    message.content += with_thought(std::exchange(thought_, ""), "");
    message.calls.push_back(std::move(call));
  }
  void read_message(const Field& item) {
    std::string role = item["role"].one_of({"user", "assistant", "system", "developer"});
    if (role == "developer") role = "system";
    const std::string content = read_content(item["content"]);
    const std::string thought = std::exchange(thought_, "");
    if (role == "assistant")
      answer().content += with_thought(thought, content);
    else
      messages_.push_back({role, content});
  }
  void read_thought(const Field& item) {
    if (const auto content = item.find("content"))
      for (const Field& part : content->items()) {
        part["type"].one_of({"reasoning_text"});
        thought_ += part["text"].text();
      }
    item.accept({"summary", "encrypted_content"});
  }
  void read_result(const Field& item) {
    ChatMessage result{"tool", read_content(item["output"])};
    result.call_id = item["call_id"].text();
    for (const ChatMessage& message : messages_)
      for (const ToolCall& call : message.calls)
        if (call.id == result.call_id) result.name = call.name;
    messages_.push_back(std::move(result));
  }
  ChatMessage& answer() {
    if (messages_.empty() || messages_.back().role != "assistant")
      messages_.push_back({"assistant", ""});
    return messages_.back();
  }

  std::vector<ChatMessage>& messages_;
  std::string thought_;
};

void read_text_format(const Field& fields, AskedResponse& asked) {
  const auto text = fields.find("text");
  if (!text) return;
  if (const auto format = text->find("format")) read_response_format(*format, asked.chat.settings);
  expect_only(*text, "verbosity", "medium");
}

OrderedJson shown_fields(const Field& fields, const AskedResponse& asked) {
  const auto given = [&](const char* name, OrderedJson otherwise) {
    const OrderedJson& json = fields.json();
    return json.contains(name) && !json[name].is_null() ? json[name] : std::move(otherwise);
  };
  const RequestSettings& settings = asked.chat.settings.request;
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"parallel_tool_calls", asked.chat.parallel_calls},
          {"previous_response_id", given("previous_response_id", nullptr)},
          {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"store", asked.store},
          {"temperature", settings.sampling.temperature},
          {"text", given("text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", OrderedJson::array())},
          {"top_p", settings.sampling.top_p},
          {"truncation", given("truncation", "disabled")},
          {"metadata", given("metadata", OrderedJson::object())}};
}

}  // namespace

AskedResponse read_response(const Api& api, const DefaultSettings& defaults, Body& body,
                            const EarlierMessages& earlier) {
  const Field fields = body.fields();
  AskedResponse out;
  ChatRequest& chat = out.chat;
  chat.thinks = defaults.thinks;
  if (const auto before = fields.find("previous_response_id")) out.kept = earlier(*before);
  InputReader(out.kept).read(fields["input"]);
  chat.messages = out.kept;
  if (const auto instructions = fields.find("instructions"))
    chat.messages.insert(chat.messages.begin(), {"system", instructions->text()});
  if (std::ranges::count(chat.messages, "user", &ChatMessage::role) == 0)
    refuse_field("input", "has no message of a user, expected at least one");
  read_tools(fields, chat);
  chat.settings = read_settings(fields, defaults);
  read_most_tokens(fields, {"max_output_tokens"}, chat.settings);
  read_text_format(fields, out);
  if (const auto reasoning = fields.find("reasoning")) {
    if (const auto effort = reasoning->find("effort"))
      chat.thinks =
          effort->one_of({"none", "minimal", "low", "medium", "high", "xhigh"}) != "none" &&
          effort->text() != "minimal";
    reasoning->accept({"summary", "generate_summary"});
  }
  if (const auto top = fields.find("top_logprobs"))
    chat.settings.request.scored = top->whole(0, kMostTopLogProbabilities);
  if (const auto truncation = fields.find("truncation"))
    if (truncation->one_of({"auto", "disabled"}) == "auto")
      chat.settings.request.context_policy = ContextPolicy::shift;
  read_thinking(fields, body, chat);
  limit_tokens(api, chat.settings);
  out.stream = read_stream(fields);
  if (const auto store = fields.find("store")) out.store = store->flag();
  fields.accept({"user", "metadata", "include", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention"});
  expect_only(fields, "background", false);
  for (const char* name : {"conversation", "prompt", "max_tool_calls"})
    expect_only(fields, name, nullptr);
  out.shown = shown_fields(fields, out);
  return out;
}

}  // namespace chaski
