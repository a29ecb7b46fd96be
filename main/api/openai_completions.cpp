#include <algorithm>
#include <mutex>
#include <numeric>

#include "main/api/openai.h"
#include "main/flags/manual.h"

namespace chaski {

namespace {

constexpr int kMostLogProbabilities = 1000;
constexpr size_t kMostPrompts = 256;

struct Completion {
  std::vector<std::string> prompts;  // texts, for `echo`
  std::vector<std::vector<TokenId>> tokens;
  AnswerSettings settings;
  StreamChoice stream;
  int n = 1, best_of = 1;
  bool echo = false;
  size_t answers() const { return tokens.size() * size_t(n); }
};

void read_prompts(const ServedModel& served, const Field& prompt, Completion& out) {
  const auto add = [&](const Field& one) {
    out.tokens.push_back(tokens_of(served, one));
    out.prompts.push_back(one.is_text() ? one.text()
                                        : served.engine().tokenizer().decode(out.tokens.back()));
  };
  // A list of numbers is one prompt, a list of texts or of lists several.
  const bool several = prompt.is_list() && !prompt.json().empty() && !prompt.json()[0].is_number();
  if (!several) return add(prompt);
  for (const Field& one : prompt.items()) add(one);
  if (out.tokens.size() > kMostPrompts)
    prompt.refuse(
        fmt::format("has {} prompts, expected at most {}", out.tokens.size(), kMostPrompts));
}

Completion read_completion(Api& api, const ServedModel& served, const Field& fields) {
  Completion out;
  read_prompts(served, fields["prompt"], out);
  out.settings = read_settings(fields, served.defaults);
  if (const auto format = fields.find("response_format"))
    read_response_format(*format, out.settings);
  limit_tokens(api, out.settings.request);
  out.stream = read_stream(fields);
  out.n = read_answers(api, fields, "n");
  out.best_of = std::max(out.n, read_answers(api, fields, "best_of"));
  if (const auto best = fields.find("best_of")) {
    if (best->whole(1) < out.n) best->wrong(fmt::format("at least n, which is {}", out.n));
    if (out.best_of > out.n && out.stream.stream)
      best->refuse("chooses among whole answers, so it cannot be streamed");
  }
  if (const auto echo = fields.find("echo")) out.echo = echo->flag();
  if (const auto logged = fields.find("logprobs")) {
    out.settings.request.scored = logged->whole(0, kMostLogProbabilities);
    if (out.echo) logged->refuse("has no values for the tokens of the prompt that echo adds");
  }
  if (out.best_of > out.n && !out.settings.request.scored) out.settings.request.scored = 0;
  if (const auto suffix = fields.find("suffix"); suffix && suffix->text() != "")
    suffix->refuse("is not supported, expected /infill");
  fields.accept({"user", "cache_prompt", "id_slot", "n_keep"});
  return out;
}

class CompletionReply {
 public:
  CompletionReply(const ServedModel& served, const Completion& asked,
                  std::vector<std::string> warnings, Reply& reply)
      : served_(served),
        asked_(asked),
        warnings_(std::move(warnings)),
        reply_(reply),
        logged_(asked.answers()) {}

  void answer() {
    std::vector<GenerateResult> all;
    for (size_t prompt = 0; prompt < asked_.tokens.size(); ++prompt)
      for (GenerateResult& result : answers_to(prompt)) all.push_back(std::move(result));
    if (!asked_.stream.stream) return put_whole(all);
    if (asked_.stream.usage) {
      OrderedJson json = head();
      json["choices"] = OrderedJson::array(), json["usage"] = usage_json(usage());
      reply_.part(sent_event(json));
    }
    reply_.part("data: [DONE]\n\n");
    reply_.end();
  }

 private:
  struct Logged {
    std::vector<TokenId> tokens;
    std::vector<LogProbabilities> values;
    size_t offset = 0;  // bytes of the answer before the first of these tokens
  };

  OrderedJson head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", served_.name},
            {"system_fingerprint", std::string("chaski-") + kVersion}};
  }

  // The answers to one prompt: the best n of best_of, by mean log probability.
  std::vector<GenerateResult> answers_to(size_t prompt) {
    const size_t first = prompt * size_t(asked_.n);
    std::vector<GenerateResult> results(static_cast<size_t>(asked_.best_of));
    const TextRequest request{asked_.tokens[prompt], asked_.settings};
    answer_all(asked_.best_of, [&](int i) {
      const bool shown = asked_.best_of == asked_.n;
      results[size_t(i)] =
          complete_text(served_, request, i, reply_.gone(), [&](const ChatEvent& event) {
            if (shown && asked_.stream.stream) take(first + size_t(i), event);
          });
      if (shown && asked_.stream.stream) put_end(first + size_t(i), results[size_t(i)]);
    });
    Usage& sum = usages_.emplace_back();
    for (const GenerateResult& result : results) sum.add(result);
    if (asked_.best_of > asked_.n)
      std::ranges::stable_sort(results, std::ranges::greater{},
                               &GenerateResult::mean_log_probability);
    results.resize(size_t(asked_.n));
    return results;
  }

  Usage usage() const {
    Usage all;
    for (const Usage& one : usages_)
      all.prompt += one.prompt, all.cached += one.cached, all.generated += one.generated;
    return all;
  }

  void begin(size_t answer) {
    if (begun_.empty()) reply_.begin(kEventStream), begun_.resize(asked_.answers());
    if (begun_[answer]) return;
    begun_[answer] = true;
    if (asked_.echo) put(answer, asked_.prompts[answer / size_t(asked_.n)]);
  }

  void put(size_t answer, std::string_view text) {
    OrderedJson json = head();
    json["choices"] = OrderedJson::array({choice(answer, text, logged_[answer], nullptr)});
    logged_[answer].offset += text.size();
    logged_[answer].tokens.clear(), logged_[answer].values.clear();
    if (asked_.stream.usage) json["usage"] = nullptr;
    reply_.part(sent_event(json));
  }

  void take(size_t answer, const ChatEvent& event) {
    const std::scoped_lock lock(mutex_);
    if (event.kind == ChatEvent::Kind::prompt) return;
    begin(answer);
    if (event.kind == ChatEvent::Kind::token && event.log_probabilities) {
      logged_[answer].tokens.push_back(event.token);
      logged_[answer].values.push_back(*event.log_probabilities);
    }
    if (event.kind == ChatEvent::Kind::text) put(answer, event.text);
  }

  void put_end(size_t answer, const GenerateResult& result) {
    const std::scoped_lock lock(mutex_);
    begin(answer);
    OrderedJson json = head();
    json["choices"] =
        OrderedJson::array({choice(answer, "", logged_[answer], finish_reason(result))});
    if (asked_.stream.usage) json["usage"] = nullptr;
    json["timings"] = timings_json(result);
    add_remarks(json, seed(answer), warnings_);
    reply_.part(sent_event(json));
  }

  uint64_t seed(size_t answer) const {
    return asked_.settings.request.sampling.seed + answer % size_t(asked_.n);
  }

  OrderedJson choice(size_t answer, std::string_view text, const Logged& logged,
                     const OrderedJson& finish) const {
    return {{"text", text},
            {"index", answer},
            {"logprobs", logged.values.empty() ? OrderedJson() : logged_json(logged)},
            {"finish_reason", finish}};
  }

  OrderedJson logged_json(const Logged& logged) const {
    const Tokenizer& tokenizer = served_.engine().tokenizer();
    OrderedJson tokens = OrderedJson::array(), values = OrderedJson::array(),
                most = OrderedJson::array(), offsets = OrderedJson::array(),
                ids = OrderedJson::array();
    size_t offset = logged.offset;
    for (size_t i = 0; i < logged.tokens.size(); ++i) {
      const std::string_view piece = tokenizer.piece(logged.tokens[i]);
      tokens.push_back(piece), values.push_back(finite(logged.values[i].drawn));
      ids.push_back(logged.tokens[i]), offsets.push_back(offset);
      offset += piece.size();
      OrderedJson one = OrderedJson::object();
      for (const auto& [id, value] : logged.values[i].most)
        one[std::string(tokenizer.piece(id))] = finite(value);
      most.push_back(std::move(one));
    }
    return {{"tokens", tokens},
            {"token_logprobs", values},
            {"top_logprobs", most},
            {"text_offset", offsets},
            {"token_ids", ids}};
  }

  void put_whole(const std::vector<GenerateResult>& results) {
    OrderedJson json = head();
    json["choices"] = OrderedJson::array();
    for (size_t i = 0; i < results.size(); ++i) {
      const GenerateResult& result = results[i];
      const std::string before = asked_.echo ? asked_.prompts[i / size_t(asked_.n)] : "";
      json["choices"].push_back(choice(i, before + result.text,
                                       {result.tokens, result.log_probabilities, before.size()},
                                       finish_reason(result)));
    }
    json["usage"] = usage_json(usage());
    json["timings"] = timings_json(results[0]);
    add_remarks(json, seed(0), warnings_);
    reply_.whole(200, kJsonType, written(json));
  }

  const ServedModel& served_;
  const Completion& asked_;
  const std::vector<std::string> warnings_;
  Reply& reply_;
  const std::string id_ = new_id("cmpl-");
  const int64_t created_ = unix_time();
  std::vector<Usage> usages_;  // by prompt
  std::mutex mutex_;           // guards what follows, and the reply
  std::vector<Logged> logged_;
  std::vector<bool> begun_;
};

}  // namespace

void answer_openai_completions(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const std::shared_ptr<const ServedModel> served = model_of(api, fields);
  const Completion asked = read_completion(api, *served, fields);
  CompletionReply(*served, asked, body.warnings(), reply).answer();
}

}  // namespace chaski
