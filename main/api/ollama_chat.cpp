// /api/chat and /api/generate: an answer as lines of JSON, or as one object with "stream": false.
#include <algorithm>
#include <chrono>
#include <utility>

#include "main/api/llama_server.h"
#include "main/api/ollama.h"
#include "main/api/ollama_request.h"
#include "main/api/openai.h"
#include "main/flags/flags.h"  // for kMaxCount

namespace chaski {

namespace {

constexpr double kNano = 1e9;

using Clock = std::chrono::steady_clock;

// Writes the lines of an answer. The text of a chat is in "message", other text in "response".
class OllamaReply {
 public:
  // `start`: before the model was asked for, which may have loaded it.
  OllamaReply(std::string model, bool chat, bool stream, Clock::time_point start, Reply& reply)
      : model_(std::move(model)), chat_(chat), stream_(stream), reply_(reply), start_(start) {}

  void take(const ChatEvent& event) {
    using Kind = ChatEvent::Kind;
    if (!stream_ || event.kind == Kind::prompt) return;
    begin();
    if (event.kind == Kind::text) put(part(event.text, "", {}));
    if (event.kind == Kind::reasoning) put(part("", event.text, {}));
    if (event.kind == Kind::call) put(part("", "", {event.call, 1}));
  }
  void end(const ChatAnswer& answer, const std::vector<std::string>& warnings, uint64_t seed) {
    OrderedJson json =
        stream_ ? part("", "", {}) : part(answer.content, answer.reasoning, answer.calls);
    const GenerateResult& r = answer.result;
    json["done"] = true;
    json["done_reason"] = finish_reason(r);
    json["total_duration"] = nanoseconds(Clock::now() - start_);
    json["load_duration"] = nanoseconds(loaded_ - start_);
    json["prompt_eval_count"] = r.prompt_tokens;
    json["prompt_eval_cached"] = r.cached_tokens;
    json["prompt_eval_duration"] = int64_t(r.prompt_seconds * kNano);
    json["eval_count"] = r.tokens.size();
    json["eval_duration"] = int64_t(r.decode_seconds * kNano);
    add_remarks(json, seed, warnings);
    finish(json);
  }
  // The answer to a request without a prompt, which only loads or unloads the model.
  void end_loaded(const char* reason, const std::vector<std::string>& warnings) {
    OrderedJson json = part("", "", {});
    json["done"] = true, json["done_reason"] = reason;
    if (!warnings.empty()) json["warnings"] = warnings;
    finish(json);
  }

 private:
  static int64_t nanoseconds(Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }

  OrderedJson part(std::string_view text, std::string_view thought,
                   std::span<const ToolCall> calls) const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    OrderedJson json = {
        {"model", model_},
        {"created_at",
         time_text(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count())}};
    OrderedJson inner = chat_ ? OrderedJson{{"role", "assistant"}, {"content", text}}
                              : OrderedJson{{"response", text}};
    if (!thought.empty()) inner["thinking"] = thought;
    for (const ToolCall& call : calls)
      inner["tool_calls"].push_back({{"id", call.id},
                                     {"function",
                                      {{"index", &call - calls.data()},
                                       {"name", call.name},
                                       {"arguments", parsed_json(call.arguments)}}}});
    if (chat_)
      json["message"] = std::move(inner);
    else
      json.update(inner);
    json["done"] = false;
    return json;
  }
  void begin() {
    if (!std::exchange(begun_, true)) reply_.begin(kNdjson);
  }
  void put(const OrderedJson& json) { reply_.part(written(json) + "\n"); }
  void finish(const OrderedJson& json) {
    if (!stream_) return reply_.whole(200, kJsonType, written(json));
    begin();
    put(json);
    reply_.end();
  }

  const std::string model_;
  const bool chat_, stream_;
  Reply& reply_;
  const Clock::time_point start_, loaded_ = Clock::now();
  bool begun_ = false;
};

// Answers and writes the answer.
void answer_request(const ServedModel& served, const ChatRequest& request, OllamaReply& out,
                    std::vector<std::string> warnings, Reply& reply) {
  const ChatAnswer answer = answer_chat(served, request, 0, reply.gone(),
                                        [&](const ChatEvent& event) { out.take(event); });
  std::ranges::copy(answer.faults, std::back_inserter(warnings));
  out.end(answer, warnings, request.settings.request.sampling.seed);
}

void answer_raw(const ServedModel& served, const TextRequest& request, OllamaReply& out,
                std::vector<std::string> warnings, Reply& reply) {
  ChatAnswer answer;
  answer.result = complete_text(served, request, 0, reply.gone(),
                                [&](const ChatEvent& event) { out.take(event); });
  answer.content = answer.result.text;
  note_cut(answer.result, warnings);
  out.end(answer, warnings, request.settings.request.sampling.seed);
}

// A request without a prompt loads its model, or with "keep_alive": 0 unloads it. What it sets is
// checked; a model that is unloaded is not loaded for that.
void load_or_unload(Api& api, Body& body, bool chat, Reply& reply) {
  const Field fields = body.fields();
  const bool unloads = read_keep(fields) == 0, streams = is_streamed(fields);
  const std::shared_ptr<const ServedModel> served = unloads ? nullptr : ollama_model(api, fields);
  ChatRequest request;
  if (chat)
    read_tools(fields, request);
  else
    read_generate_fields(fields);
  read_ollama_options(fields, served ? served->defaults : DefaultSettings(),
                      served ? served->engine().context_length() : kMaxCount, request.settings);
  read_ollama_format(fields, request.settings);
  read_think(fields, request.thinks);
  accept_ollama_fields(fields);
  const std::string name = unloads ? api.unload(ollama_name(fields)) : served->name;
  OllamaReply(name, chat, streams, Clock::now(), reply)
      .end_loaded(unloads ? "unload" : "load", body.warnings());
}

}  // namespace

void answer_ollama_chat(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const auto messages = fields.find("messages");
  if (!messages || (messages->is_list() && messages->json().empty()))
    return load_or_unload(api, body, true, reply);
  const Clock::time_point start = Clock::now();
  const std::shared_ptr<const ServedModel> served = ollama_model(api, fields);
  OllamaReply out(served->name, true, is_streamed(fields), start, reply);
  accept_ollama_fields(fields);
  ChatRequest request;
  read_tools(fields, request);
  request.thinks = read_think(fields, served->defaults.thinks);
  read_ollama_options(fields, served->defaults, served->engine().context_length(),
                      request.settings);
  read_ollama_format(fields, request.settings);
  limit_tokens(api, request.settings);
  for (const Field& message : messages->items()) refuse_images(message);
  request.messages = read_messages(*messages);
  answer_request(*served, request, out, body.warnings(), reply);
}

void answer_ollama_generate(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const auto prompt = fields.find("prompt");
  if (!prompt || prompt->text().empty()) return load_or_unload(api, body, false, reply);
  const Clock::time_point start = Clock::now();
  const std::shared_ptr<const ServedModel> served = ollama_model(api, fields);
  OllamaReply out(served->name, false, is_streamed(fields), start, reply);
  accept_ollama_fields(fields);
  const GenerateFields own = read_generate_fields(fields);
  AnswerSettings settings;
  read_ollama_options(fields, served->defaults, served->engine().context_length(), settings);
  read_ollama_format(fields, settings);
  limit_tokens(api, settings);
  const bool thinks = read_think(fields, served->defaults.thinks);
  if (own.raw || !own.suffix.empty()) {
    TextRequest request{own.suffix.empty() ? tokens_of(*served, prompt->text(), "prompt",
                                                       spelled_in(fields, Spelled::control))
                                           : hole_prompt(*served, prompt->text(), own.suffix),
                        std::move(settings)};
    return answer_raw(*served, request, out, body.warnings(), reply);
  }
  ChatRequest request;
  if (!own.system.empty()) request.messages.push_back({"system", own.system});
  request.messages.push_back({"user", prompt->text()});
  request.thinks = thinks, request.settings = std::move(settings);
  answer_request(*served, request, out, body.warnings(), reply);
}

}  // namespace chaski
