#include <algorithm>
#include <mutex>
#include <utility>

#include "main/api/openai.h"
#include "main/flags/manual.h"

namespace chaski {

namespace {

constexpr int kMostLogged = 20;  // as OpenAI

// Accepted fields that do not affect the answer.
void accept_idle_fields(const Field& fields) {
  fields.accept({"user", "safety_identifier", "metadata", "store", "service_tier", "prediction",
                 "prompt_cache_key", "prompt_cache_retention", "cache_prompt", "id_slot", "slot_id",
                 "n_keep", "n_discard", "reasoning_format", "keep_alive", "ttl"});
  for (const char* name : {"audio", "web_search_options"}) expect_only(fields, name, nullptr);
  for (const char* name : {"post_sampling_probs", "thinking_forced_open"})
    expect_only(fields, name, false);
  for (const char* name : {"min_keep", "t_max_predict_ms"}) expect_only(fields, name, 0);
  expect_only(fields, "modalities", OrderedJson::array({"text"}));
  expect_only(fields, "verbosity", "medium");
}

// An assistant's message at the end is the beginning of the answer, also without these fields.
void read_continuation(const Field& fields, const std::vector<ChatMessage>& messages) {
  const auto is = [&](const char* name, bool value) {
    const auto field = fields.find(name);
    return field && field->flag() == value;
  };
  const bool begun = messages.back().role == "assistant";
  const bool continues = is("continue_final_message", true);
  if (continues && is("add_generation_prompt", true))
    fields["continue_final_message"].refuse(
        "and add_generation_prompt are both true, expected one of them");
  if (continues && !begun)
    fields["continue_final_message"].refuse(
        "is true, expected an assistant's message at the end of messages");
  if (!begun && is("add_generation_prompt", false))
    fields["add_generation_prompt"].refuse(
        "is false, expected true, or an assistant's message at the end of messages");
}

ChatRequest read_request(const Api& api, const ServedModel& served, Body& body) {
  const Field fields = body.fields();
  ChatRequest request;
  request.thinks = served.defaults.thinks;
  request.messages = read_messages(fields["messages"]);
  read_tools(fields, request);
  request.settings = read_settings(fields, served.defaults);
  if (const auto format = fields.find("response_format"))
    read_response_format(*format, request.settings);
  read_log_probabilities(fields, request.settings);
  read_thinking(fields, body, request);
  limit_tokens(api, request.settings);
  read_continuation(fields, request.messages);
  accept_idle_fields(fields);
  return request;
}

// One response, whole or streamed. Several answers are written by several threads.
class ChatReply {
 public:
  ChatReply(const ServedModel& served, const ChatRequest& request, StreamChoice choice,
            std::vector<std::string> warnings, Reply& reply)
      : served_(served),
        request_(request),
        choice_(choice),
        warnings_(std::move(warnings)),
        reply_(reply) {}

  void answer(int n) {
    std::vector<ChatAnswer> answers(static_cast<size_t>(n));
    logged_.resize(size_t(n)), timings_.resize(size_t(n));
    answer_all(n, [&](int i) {
      answers[size_t(i)] = answer_chat(served_, request_, i, reply_.gone(),
                                       [&](const ChatEvent& event) { take(i, event); });
      if (choice_.stream) put_end(i, answers[size_t(i)]);
    });
    choice_.stream ? end(answers) : put_whole(answers);
  }

 private:
  OrderedJson head(const char* object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", served_.name},
            {"system_fingerprint", std::string("chaski-") + kVersion}};
  }
  OrderedJson chunk(int i, OrderedJson delta) {
    OrderedJson json = head("chat.completion.chunk");
    OrderedJson choice = {{"index", i},
                          {"delta", std::move(delta)},
                          {"logprobs", nullptr},
                          {"finish_reason", nullptr}};
    if (const std::string logged = std::exchange(logged_[size_t(i)], ""); !logged.empty())
      choice["logprobs"] = parsed_json(logprobs_text(logged));
    json["choices"] = OrderedJson::array({std::move(choice)});
    if (choice_.usage) json["usage"] = nullptr;
    if (choice_.timings && timings_[size_t(i)].drawn() > 0)
      json["timings"] = timings_[size_t(i)].json();
    return json;
  }
  void put(const OrderedJson& json) { reply_.part(sent_event(json)); }

  // An error before the first pass is answered with its HTTP status.
  void begin(int i) {
    if (begun_.empty()) reply_.begin(kEventStream), begun_.resize(logged_.size());
    if (begun_[size_t(i)]) return;
    begun_[size_t(i)] = true;
    put(chunk(i, {{"role", "assistant"}, {"content", ""}}));
  }

  void take(int i, const ChatEvent& event) {
    using Kind = ChatEvent::Kind;
    const std::scoped_lock lock(mutex_);
    if (event.kind == Kind::token && event.log_probabilities) log(logged_[size_t(i)], event);
    if (!choice_.stream || event.kind == Kind::prompt) return;
    begin(i);
    timings_[size_t(i)].take(event);
    if (event.kind == Kind::reading && choice_.progress) put_progress(i);
    if (event.kind == Kind::reasoning) put(chunk(i, {{"reasoning_content", event.text}}));
    if (event.kind == Kind::text) put(chunk(i, {{"content", event.text}}));
    if (event.kind == Kind::call_begun) begin_call(i, event);
    if (event.kind == Kind::call_part)
      put_call(i, {{"index", event.count}, {"function", {{"arguments", event.text}}}});
  }

  void log(std::string& logged, const ChatEvent& event) {
    if (!logged.empty()) logged += ',';
    logged += written(
        log_probability_json(served_.engine().tokenizer(), event.token, *event.log_probabilities));
  }
  static std::string logprobs_text(const std::string& logged) {
    return R"({"content":[)" + logged + R"(],"refusal":null})";
  }

  void put_progress(int i) {
    OrderedJson json = chunk(i, OrderedJson::object());
    json["prompt_progress"] = timings_[size_t(i)].progress();
    put(json);
  }

  // The id and the name come first, then the arguments.
  void begin_call(int i, const ChatEvent& event) {
    OrderedJson call = {{"index", event.count}};
    call.update(tool_calls_json({event.call, 1})[0]);
    put_call(i, std::move(call));
  }
  void put_call(int i, OrderedJson call) {
    put(chunk(i, {{"tool_calls", OrderedJson::array({std::move(call)})}}));
  }

  void put_end(int i, const ChatAnswer& answer) {
    const std::scoped_lock lock(mutex_);
    begin(i);
    OrderedJson json = chunk(i, OrderedJson::object());
    json["choices"][0]["finish_reason"] = finish_reason(answer.result, !answer.calls.empty());
    json["timings"] = timings_json(answer.result);
    add_remarks(json, request_.settings.request.sampling.seed + uint64_t(i), remarks({&answer, 1}));
    put(json);
  }

  void end(const std::vector<ChatAnswer>& answers) {
    if (choice_.usage) {
      OrderedJson json = head("chat.completion.chunk");
      json["choices"] = OrderedJson::array();
      json["usage"] = usage_json(usage(answers));
      json["timings"] = timings(answers);
      put(json);
    }
    reply_.part("data: [DONE]\n\n");
    reply_.end();
  }

  void put_whole(const std::vector<ChatAnswer>& answers) {
    OrderedJson json = head("chat.completion");
    json["choices"] = nullptr;
    std::string choices;
    for (size_t i = 0; i < answers.size(); ++i) {
      const ChatAnswer& answer = answers[i];
      const bool calls = !answer.calls.empty();
      OrderedJson message = {{"role", "assistant"}, {"content", answer.content}};
      if (calls && answer.content.empty()) message["content"] = nullptr;
      if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
      if (calls) message["tool_calls"] = tool_calls_json(answer.calls);
      const OrderedJson choice = {{"index", i},
                                  {"message", std::move(message)},
                                  {"logprobs", nullptr},
                                  {"finish_reason", finish_reason(answer.result, calls)}};
      std::string text = written(choice);
      if (request_.settings.request.scored)
        put_member(text, "logprobs", logprobs_text(std::exchange(logged_[i], "")));
      choices += (i > 0 ? "," : "") + text;
    }
    json["usage"] = usage_json(usage(answers));
    json["timings"] = timings(answers);
    add_remarks(json, request_.settings.request.sampling.seed, remarks(answers));
    std::string text = written(json);
    put_member(text, "choices", "[" + choices + "]");
    reply_.whole(200, kJsonType, text);
  }

  static Usage usage(std::span<const ChatAnswer> answers) {
    Usage sum;
    for (const ChatAnswer& answer : answers) sum.add(answer.result, answer.reasoning_tokens);
    return sum;
  }
  static OrderedJson timings(std::span<const ChatAnswer> answers) {
    std::vector<GenerateResult> results;
    for (const ChatAnswer& answer : answers) results.push_back(answer.result);
    Timings sum;
    sum.add(results);
    return sum.json();
  }
  std::vector<std::string> remarks(std::span<const ChatAnswer> answers) const {
    std::vector<std::string> all = warnings_;
    for (const ChatAnswer& answer : answers)
      std::ranges::copy(answer.faults, std::back_inserter(all));
    return all;
  }

  const ServedModel& served_;
  const ChatRequest& request_;
  const StreamChoice choice_;
  const std::vector<std::string> warnings_;
  Reply& reply_;
  const std::string id_ = new_id("chatcmpl-");
  const int64_t created_ = unix_time();
  std::mutex mutex_;                 // guards what follows, and the reply
  std::vector<std::string> logged_;  // JSON of log probabilities that no chunk has yet, by answer
  std::vector<bool> begun_;
  std::vector<RunningTimings> timings_;
};

}  // namespace

std::shared_ptr<const ServedModel> model_of(Api& api, const Field& fields) {
  ModelWish wish;
  if (const auto name = fields.find("model")) wish.name = name->text();
  wish.keep = read_keep(fields);
  if (const auto stream = fields.find("stream")) wish.streams = stream->flag();
  return api.model(wish);
}

int read_answers(const Api& api, const Field& fields, const char* name) {
  const auto field = fields.find(name);
  return field ? field->whole(1, api.most_answers) : 1;
}

void read_log_probabilities(const Field& fields, AnswerSettings& settings) {
  const auto top = fields.find("top_logprobs"), probabilities = fields.find("n_probs");
  const auto asked = fields.find("logprobs");
  const bool on = asked && asked->flag();
  if (top) {
    const int most = top->whole(0, kMostLogged);
    if (!on && most > 0) top->refuse("needs logprobs: true");
    if (on) settings.request.scored = most;
  } else if (probabilities) {
    const int most = probabilities->whole(0, kMostLogged);
    if (most > 0 || on) settings.request.scored = most;
  } else if (on) {
    settings.request.scored = 0;
  }
}

void count_chat_tokens(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const std::shared_ptr<const ServedModel> served = model_of(api, body.fields());
  const auto conversation = conversation_of(*served, read_request(api, *served, body));
  try {
    const size_t count = conversation->prompt().size();
    reply.whole(200, kJsonType,
                written({{"object", "response.input_tokens"}, {"input_tokens", count}}));
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), "messages");
  }
}

void answer_openai_chat(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const std::shared_ptr<const ServedModel> served = model_of(api, fields);
  const ChatRequest request = read_request(api, *served, body);
  const StreamChoice choice = read_stream(fields);
  const int n = read_answers(api, fields, "n");
  ChatReply(*served, request, choice, body.warnings(), reply).answer(n);
}

}  // namespace chaski
