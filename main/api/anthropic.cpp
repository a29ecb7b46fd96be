// Anthropic's interface: /v1/messages and /v1/messages/count_tokens.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "main/api/anthropic_request.h"
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
  ChatRequest request = read_anthropic(api, served->defaults, body);
  read_anthropic_settings(api, served->defaults, fields, request);
  const auto stream = fields.find("stream");
  AnthropicReply(*served, request, stream && stream->flag(), body.warnings(), reply).answer();
}

void count_anthropic_tokens(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const std::shared_ptr<const ServedModel> served = model_of(api, body.fields());
  const ChatRequest request = read_anthropic(api, served->defaults, body);
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
