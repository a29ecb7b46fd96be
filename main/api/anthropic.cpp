// Anthropic's interface: /v1/messages and /v1/messages/count_tokens.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "engine/shelf/inspection.h"  // for expected_names()
#include "main/api/changing_lines.h"
#include "main/api/openai.h"

namespace chaski {

namespace {

// A client that hears nothing for longer may close the connection.
constexpr std::chrono::seconds kPingInterval{10};

OrderedJson anthropic_error(const ApiError& error) {
  const char* type = error.status == 401   ? "authentication_error"
                     : error.status == 403 ? "permission_error"
                     : error.status == 404 ? "not_found_error"
                     : error.status == 413 ? "request_too_large"
                     : error.status == 429 ? "rate_limit_error"
                     : error.status == 503 ? "overloaded_error"
                     : error.status < 500  ? "invalid_request_error"
                                           : "api_error";
  // Clients recognise these words, and then shorten the conversation.
  const std::string message = error.context > 0
                                  ? fmt::format("prompt is too long: {} tokens > {} maximum",
                                                error.prompt_tokens, error.context)
                                  : error.what();
  return {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
}
std::string anthropic_error_body(const ApiError& error) { return written(anthropic_error(error)); }
std::string anthropic_stream_error(const ApiError& error, int) {
  return sent_event("error", anthropic_error(error));
}
constexpr Dialect kAnthropic = {anthropic_error_body, anthropic_stream_error};

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
                                  ", which no tool_use block before has as its id");
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
  thinking->accept({"budget_tokens", "display"});  // the model chooses how long it thinks
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

ChatRequest read_anthropic(const Api& api, const ServedModel& served, Body& body) {
  const Field fields = body.fields();
  ChatRequest request;
  request.thinks = served.defaults.thinks;
  request.messages = MessageReader().read(fields["messages"]);
  add_system(api, fields, body, request.messages);
  read_anthropic_tools(fields, request);
  read_anthropic_thinking(fields, request);
  return request;
}

void read_anthropic_settings(const Api& api, const ServedModel& served, const Field& fields,
                             ChatRequest& request) {
  request.settings = read_settings(fields, served.defaults);
  if (const auto stops = fields.find("stop_sequences"))
    read_stops(*stops, request.settings.request);
  read_output(fields, request.settings);
  limit_tokens(api, request.settings);
  fields.accept({"metadata", "service_tier", "context_management", "betas", "inference_geo",
                 "cache_control", "speed", "user_profile_id", "workspace_id", "diagnostics"});
  expect_only(fields, "container", nullptr);
  expect_only(fields, "mcp_servers", OrderedJson::array());
}

// Which of the client's own texts ended the answer; nothing if it was another end.
std::optional<std::string> stop_of(const ServedModel& served, const ChatRequest& request,
                                   const GenerateResult& result) {
  if (result.finish != Finish::stop) return std::nullopt;
  const std::string all = served.engine().tokenizer().decode(result.tokens);
  std::optional<std::string> first;
  size_t place = std::string::npos;
  for (const std::string& stop : request.settings.request.stop)
    if (const size_t at = all.find(stop); at < place) place = at, first = stop;
  return first;
}

// One response, whole or streamed.
class AnthropicReply {
 public:
  AnthropicReply(const ServedModel& served, const ChatRequest& request, bool stream,
                 std::vector<std::string> warnings, Reply& reply)
      : served_(served),
        request_(request),
        stream_(stream),
        warnings_(std::move(warnings)),
        reply_(reply) {}

  void answer() {
    const ChatAnswer answer = answer_chat(served_, request_, 0, reply_.gone(),
                                          [&](const ChatEvent& event) { take(event); });
    std::ranges::copy(answer.faults, std::back_inserter(warnings_));
    stream_ ? put_end(answer) : put_whole(answer);
  }

 private:
  using Clock = std::chrono::steady_clock;

  OrderedJson message(OrderedJson content, OrderedJson usage) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", served_.name},
            {"content", std::move(content)},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", std::move(usage)}};
  }
  // Tokens from the prefix cache are not part of input_tokens.
  static OrderedJson usage(size_t prompt, size_t cached, size_t generated) {
    return {{"input_tokens", prompt - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", generated}};
  }
  static OrderedJson usage(const GenerateResult& r) {
    return usage(size_t(r.prompt_tokens), size_t(r.cached_tokens), r.tokens.size());
  }
  OrderedJson end_of(const ChatAnswer& answer) const {
    const std::optional<std::string> stop = stop_of(served_, request_, answer.result);
    const Finish finish = answer.result.finish;
    const char* reason = !answer.calls.empty() ? "tool_use"
                         : stop                ? "stop_sequence"
                         : finish == Finish::length || finish == Finish::interrupted ? "max_tokens"
                         : finish == Finish::full ? "model_context_window_exceeded"
                                                  : "end_turn";
    OrderedJson json = {{"stop_reason", reason}, {"stop_sequence", nullptr}};
    if (stop && answer.calls.empty()) json["stop_sequence"] = *stop;
    return json;
  }

  void put_whole(const ChatAnswer& answer) {
    OrderedJson content = OrderedJson::array();
    if (!answer.reasoning.empty())
      content.push_back({{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", ""}});
    if (!answer.content.empty()) content.push_back({{"type", "text"}, {"text", answer.content}});
    for (const ToolCall& call : answer.calls)
      content.push_back({{"type", "tool_use"},
                         {"id", call.id},
                         {"name", call.name},
                         {"input", parsed_json(call.arguments)}});
    OrderedJson json = message(std::move(content), usage(answer.result));
    json.update(end_of(answer));
    add_remarks(json, request_.settings.request.sampling.seed, warnings_);
    reply_.whole(200, kJsonType, written(json));
  }

  void put(const char* type, OrderedJson fields) {
    OrderedJson json = {{"type", type}};
    json.update(fields);
    reply_.part(sent_event(type, json));
    last_ = Clock::now();
  }

  void take(const ChatEvent& event) {
    using Kind = ChatEvent::Kind;
    if (!stream_) return;
    if (event.kind == Kind::prompt) return void(prompt_ = event.count);
    begin(event.kind == Kind::reading ? event.count : 0);
    if (event.kind == Kind::reading && Clock::now() - last_ >= kPingInterval)
      put("ping", OrderedJson::object());
    if (event.kind == Kind::reasoning) add("thinking", "thinking_delta", "thinking", event.text);
    if (event.kind == Kind::text) add("text", "text_delta", "text", event.text);
    if (event.kind == Kind::call_begun) begin_call(*event.call);
    if (event.kind == Kind::call_part)
      put_delta({{"type", "input_json_delta"}, {"partial_json", event.text}});
  }

  void begin(size_t cached) {
    if (std::exchange(begun_, true)) return;
    reply_.begin(kEventStream);
    put("message_start", {{"message", message(OrderedJson::array(), usage(prompt_, cached, 0))}});
    put("ping", OrderedJson::object());
  }

  void open(const char* type, OrderedJson block) {
    close();
    block_ = type;
    put("content_block_start", {{"index", index_}, {"content_block", std::move(block)}});
  }
  void put_delta(OrderedJson delta) {
    put("content_block_delta", {{"index", index_}, {"delta", std::move(delta)}});
  }
  void close() {
    if (block_.empty()) return;
    if (block_ == "thinking") put_delta({{"type", "signature_delta"}, {"signature", ""}});
    put("content_block_stop", {{"index", index_++}});
    block_.clear();
  }

  // Text or a thought.
  void add(const char* block, const char* delta, const char* name, std::string_view text) {
    if (block_ != block) {
      OrderedJson empty = {{"type", block}, {name, ""}};
      if (block == std::string_view("thinking")) empty["signature"] = "";
      open(block, std::move(empty));
    }
    put_delta({{"type", delta}, {name, text}});
  }
  void begin_call(const ToolCall& call) {
    open("tool_use", {{"type", "tool_use"},
                      {"id", call.id},
                      {"name", call.name},
                      {"input", OrderedJson::object()}});
  }

  void put_end(const ChatAnswer& answer) {
    begin(size_t(answer.result.cached_tokens));
    close();
    OrderedJson json = {{"delta", end_of(answer)}, {"usage", usage(answer.result)}};
    add_remarks(json, request_.settings.request.sampling.seed, warnings_);
    put("message_delta", std::move(json));
    put("message_stop", OrderedJson::object());
    reply_.end();
  }

  const ServedModel& served_;
  const ChatRequest& request_;
  const bool stream_;
  std::vector<std::string> warnings_;
  Reply& reply_;
  const std::string id_ = new_id("msg_");
  Clock::time_point last_ = Clock::now();
  size_t prompt_ = 0;  // tokens
  std::string block_;  // the type of the open block; "": none
  size_t index_ = 0;   // of the open block, or of the next one
  bool begun_ = false;
};

void answer_anthropic(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const std::shared_ptr<const ServedModel> served = model_of(api, fields);
  ChatRequest request = read_anthropic(api, *served, body);
  read_anthropic_settings(api, *served, fields, request);
  const auto stream = fields.find("stream");
  AnthropicReply(*served, request, stream && stream->flag(), body.warnings(), reply).answer();
}

void count_anthropic_tokens(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const std::shared_ptr<const ServedModel> served = model_of(api, body.fields());
  const ChatRequest request = read_anthropic(api, *served, body);
  const auto conversation = conversation_of(*served, request);
  try {
    const size_t count = conversation->prompt().size();
    reply.whole(200, kJsonType, written({{"input_tokens", count}}));
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), "messages");
  }
}

}  // namespace

std::span<const Endpoint> anthropic_routes() {
  static const Endpoint kRoutes[] = {
      {"POST", "/v1/messages", answer_anthropic, kAnthropic},
      {"POST", "/v1/messages/count_tokens", count_anthropic_tokens, kAnthropic, false},
  };
  return kRoutes;
}

}  // namespace chaski
