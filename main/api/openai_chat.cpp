#include <algorithm>
#include <chrono>
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
  for (const char* name : {"post_sampling_probs", "timings_per_token", "thinking_forced_open"})
    expect_only(fields, name, false);
  for (const char* name : {"min_keep", "t_max_predict_ms"}) expect_only(fields, name, 0);
  expect_only(fields, "modalities", OrderedJson::array({"text"}));
  expect_only(fields, "add_generation_prompt", true);
  expect_only(fields, "verbosity", "medium");
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
  expect_no_grammar_with_tools(request);
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
    logged_.resize(size_t(n));
    answer_all(n, [&](int i) {
      answers[size_t(i)] = answer_chat(served_, request_, i, reply_.gone(),
                                       [&](const ChatEvent& event) { take(i, event); });
      if (choice_.stream) put_end(i, answers[size_t(i)]);
    });
    choice_.stream ? end(answers) : put_whole(answers);
  }

 private:
  using Clock = std::chrono::steady_clock;

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
      choice["logprobs"] = OrderedJson::parse(logprobs_text(logged));
    json["choices"] = OrderedJson::array({std::move(choice)});
    if (choice_.usage) json["usage"] = nullptr;
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
    if (event.kind == Kind::reading && choice_.progress) put_progress(i, event);
    if (event.kind == Kind::reasoning) put(chunk(i, {{"reasoning_content", event.text}}));
    if (event.kind == Kind::text) put(chunk(i, {{"content", event.text}}));
    if (event.kind == Kind::call) put_call(i, event);
  }

  void log(std::string& logged, const ChatEvent& event) {
    if (!logged.empty()) logged += ',';
    logged += written(
        log_probability_json(served_.engine().tokenizer(), event.token, *event.log_probabilities));
  }
  static std::string logprobs_text(const std::string& logged) {
    return R"({"content":[)" + logged + R"(],"refusal":null})";
  }

  void put_progress(int i, const ChatEvent& event) {
    if (!cached_) cached_ = event.count;
    const std::chrono::duration<double, std::milli> took = Clock::now() - start_;
    OrderedJson json = chunk(i, OrderedJson::object());
    json["prompt_progress"] = progress_json(event.count, event.all, *cached_, took.count());
    put(json);
  }

  // The id and the name come first, then the arguments.
  void put_call(int i, const ChatEvent& event) {
    OrderedJson call = tool_calls_json({event.call, 1})[0];
    call["function"]["arguments"] = "";
    OrderedJson first = {{"index", event.count}};
    first.update(call);
    put(chunk(i, {{"tool_calls", OrderedJson::array({first})}}));
    const OrderedJson rest = {{"index", event.count},
                              {"function", {{"arguments", event.call->arguments}}}};
    put(chunk(i, {{"tool_calls", OrderedJson::array({rest})}}));
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
    json["timings"] = timings_json(answers[0].result);
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
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;                 // guards what follows, and the reply
  std::vector<std::string> logged_;  // JSON of log probabilities that no chunk has yet, by answer
  std::vector<bool> begun_;
  std::optional<size_t> cached_;
};

}  // namespace

std::shared_ptr<const ServedModel> model_of(Api& api, const Field& fields) {
  const auto name = fields.find("model");
  return api.model(name ? name->text() : "");
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
