#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "main/api/openai.h"
#include "main/flags/manual.h"

namespace chaski {

namespace {

constexpr int kMostLogProbabilities = 5;  // as OpenAI

struct Completion {
  std::vector<std::string> prompts;  // texts, for `echo`
  std::vector<std::vector<TokenId>> tokens;
  AnswerSettings settings;
  StreamChoice stream;
  int n = 1, best_of = 1;
  bool echo = false, logged = false;  // logged: log probabilities were asked for
  size_t answers() const { return tokens.size() * size_t(n); }
};

void read_prompts(const ServedModel& served, const Field& fields, Completion& out) {
  const Field prompt = fields["prompt"];
  const Spelled as = spelled_in(fields, Spelled::text);
  const auto add = [&](const Field& one) {
    out.tokens.push_back(tokens_of(served, one, as));
    out.prompts.push_back(one.is_text() ? one.text()
                                        : served.engine().tokenizer().decode(out.tokens.back()));
  };
  if (is_one_prompt(prompt)) return add(prompt);
  expect_few_texts(prompt.json().size());
  for (const Field& one : prompt.items()) add(one);
}

Completion read_completion(Api& api, const ServedModel& served, const Field& fields) {
  Completion out;
  read_prompts(served, fields, out);
  out.settings = read_settings(fields, served.defaults);
  if (const auto format = fields.find("response_format"))
    read_response_format(*format, out.settings);
  limit_tokens(api, out.settings);
  out.stream = read_stream(fields);
  out.n = read_answers(api, fields, "n");
  out.best_of = std::max(out.n, read_answers(api, fields, "best_of"));
  if (const auto best = fields.find("best_of")) {
    if (best->whole(1) < out.n) best->wrong(fmt::format("at least n, which is {}", out.n));
    if (out.best_of > out.n && out.stream.stream)
      best->refuse("chooses among whole answers, so it cannot be streamed");
  }
  expect_few_texts(out.tokens.size() * size_t(out.best_of));
  if (const auto echo = fields.find("echo")) out.echo = echo->flag();
  if (const auto logged = fields.find("logprobs")) {
    out.settings.request.scored = logged->whole(0, kMostLogProbabilities), out.logged = true;
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
    if (asked_.echo && asked_.logged) score_prompts();
    const std::vector<GenerateResult> all = chosen(texts());
    if (!asked_.stream.stream) return put_whole(all);
    if (asked_.stream.usage) {
      OrderedJson json = head();
      json["choices"] = OrderedJson::array(), json["usage"] = usage_json(usage());
      json["timings"] = timings_;
      reply_.part(sent_event(json));
    }
    reply_.part("data: [DONE]\n\n");
    reply_.end();
  }

 private:
  struct Logged {
    std::vector<TokenId> tokens;
    // Nothing precedes the first token of a prompt, so its log probability is NaN.
    std::vector<LogProbabilities> values;
    std::vector<size_t> offsets = {};  // in the text, of the first tokens: those of the prompt
    size_t offset = 0;                 // bytes of the text before the first token after these
  };

  // Where the tokens of a prompt begin in its text. The space that the tokenizer adds in front and
  // control tokens such as BOS are not in the text.
  std::vector<size_t> offsets_in(std::string_view text, std::span<const TokenId> tokens) const {
    const Tokenizer& tokenizer = served_.engine().tokenizer();
    std::vector<size_t> offsets;
    size_t at = 0;
    for (const TokenId token : tokens) {
      offsets.push_back(at);
      const std::string_view rest = text.substr(at);
      std::string_view piece =
          tokenizer.is_control(token) ? tokenizer.raw(token) : tokenizer.piece(token);
      if (tokenizer.is_control(token) && !rest.starts_with(piece)) continue;
      if (at == 0 && piece.starts_with(' ') && !rest.starts_with(piece)) piece.remove_prefix(1);
      at += std::min(piece.size(), rest.size());
    }
    return offsets;
  }

  void score_prompts() {
    for (size_t i = 0; i < asked_.tokens.size(); ++i) {
      const std::vector<TokenId>& tokens = asked_.tokens[i];
      std::vector<LogProbabilities> values = {{std::numeric_limits<double>::quiet_NaN(), {}}};
      std::ranges::move(served_.score(tokens, *asked_.settings.request.scored, reply_.gone()),
                        std::back_inserter(values));
      if (values.size() < tokens.size()) throw time_is_over();
      prompts_.push_back({tokens, std::move(values), offsets_in(asked_.prompts[i], tokens)});
    }
  }
  // What echo shows before an answer.
  Logged logged_prompt(size_t answer) const {
    return prompts_.empty() ? Logged() : prompts_[answer / size_t(asked_.n)];
  }

  OrderedJson head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", served_.name},
            {"system_fingerprint", std::string("chaski-") + kVersion}};
  }

  // All texts: best_of for each prompt, generated at once.
  std::vector<GenerateResult> texts() {
    const size_t each = size_t(asked_.best_of);
    std::vector<TextRequest> requests;
    for (const auto& tokens : asked_.tokens) requests.push_back({tokens, asked_.settings});
    std::vector<GenerateResult> results(requests.size() * each);
    const bool streams = asked_.stream.stream;  // then best_of is n
    answer_all(int(results.size()), [&](int i) {
      const size_t text = size_t(i);
      results[text] = complete_text(served_, requests[text / each], int(text % each), reply_.gone(),
                                    [&](const ChatEvent& event) {
                                      if (streams) take(text, event);
                                    });
      if (streams) put_end(text, results[text]);
    });
    return results;
  }

  // Of each prompt the best n of best_of, by mean log probability.
  std::vector<GenerateResult> chosen(std::vector<GenerateResult> texts) {
    std::vector<GenerateResult> out;
    Timings timings;
    for (std::span rest(texts); !rest.empty(); rest = rest.subspan(size_t(asked_.best_of))) {
      const auto of_prompt = rest.first(size_t(asked_.best_of));
      Usage& sum = usages_.emplace_back();
      timings.add(of_prompt);
      for (const GenerateResult& result : of_prompt) sum.add(result);
      if (asked_.best_of > asked_.n)
        std::ranges::stable_sort(of_prompt, std::ranges::greater{},
                                 &GenerateResult::mean_log_probability);
      std::ranges::move(of_prompt.first(size_t(asked_.n)), std::back_inserter(out));
    }
    timings_ = timings.json();
    return out;
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
    if (!asked_.echo) return;
    logged_[answer] = logged_prompt(answer);
    put(answer, asked_.prompts[answer / size_t(asked_.n)]);
  }

  void put(size_t answer, std::string_view text) {
    OrderedJson json = head();
    json["choices"] = OrderedJson::array({choice(answer, text, logged_[answer], nullptr)});
    logged_[answer].offset += text.size();
    logged_[answer].tokens.clear(), logged_[answer].values.clear();
    logged_[answer].offsets.clear();
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
    add_remarks(json, seed(answer), remarks({&result, 1}));
    reply_.part(sent_event(json));
  }
  std::vector<std::string> remarks(std::span<const GenerateResult> results) const {
    std::vector<std::string> all = warnings_;
    for (const GenerateResult& result : results) note_cut(result, all);
    return all;
  }

  uint64_t seed(size_t answer) const {
    return asked_.settings.request.sampling.seed + answer % size_t(asked_.n);
  }

  OrderedJson choice(size_t answer, std::string_view text, const Logged& logged,
                     const OrderedJson& finish) const {
    return {
        {"text", text},
        {"index", answer},
        {"logprobs", asked_.logged && !logged.values.empty() ? logged_json(logged) : OrderedJson()},
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
      const bool of_prompt = i < logged.offsets.size();
      tokens.push_back(piece), ids.push_back(logged.tokens[i]);
      offsets.push_back(of_prompt ? logged.offsets[i] : offset);
      if (!of_prompt) offset += piece.size();
      if (std::isnan(logged.values[i].drawn)) {
        values.push_back(nullptr), most.push_back(nullptr);
        continue;
      }
      values.push_back(finite(logged.values[i].drawn));
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
      Logged logged = logged_prompt(i);
      logged.offset = before.size();
      std::ranges::copy(result.tokens, std::back_inserter(logged.tokens));
      std::ranges::copy(result.log_probabilities, std::back_inserter(logged.values));
      json["choices"].push_back(choice(i, before + result.text, logged, finish_reason(result)));
    }
    json["usage"] = usage_json(usage());
    json["timings"] = timings_;
    add_remarks(json, seed(0), remarks(results));
    reply_.whole(200, kJsonType, written(json));
  }

  const ServedModel& served_;
  const Completion& asked_;
  const std::vector<std::string> warnings_;
  Reply& reply_;
  const std::string id_ = new_id("cmpl-");
  const int64_t created_ = unix_time();
  std::vector<Logged> prompts_;  // with echo and logprobs
  std::vector<Usage> usages_;    // by prompt
  OrderedJson timings_;          // of all texts
  std::mutex mutex_;             // guards what follows, and the reply
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
