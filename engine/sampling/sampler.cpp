#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>

#include "engine/grammar/grammar.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/noise.h"

namespace chaski {

namespace {

template <class T>
void expect(bool holds, const char* flag, T value, const std::string& range) {
  if (!holds) fail(Exit::usage, "{} is {}, expected {}", flag, value, range);
}

bool reads_history(SamplerStep step) {
  return step == SamplerStep::penalties || step == SamplerStep::dry;
}

bool narrows_by_mirostat(SamplerStep step) {
  return !reads_history(step) && step != SamplerStep::temperature;
}

bool changes(const SamplerOptions& o, SamplerStep step) {
  switch (step) {
    case SamplerStep::penalties:
      return o.penalties.any();
    case SamplerStep::dry:
      return o.dry.multiplier != 0;
    case SamplerStep::top_n_sigma:
      return o.top_n_sigma > 0;
    case SamplerStep::top_k:
      return o.top_k > 0;
    case SamplerStep::typical:
      return o.typical < 1;
    case SamplerStep::top_p:
      return o.top_p < 1;
    case SamplerStep::min_p:
      return o.min_p > 0;
    case SamplerStep::xtc:
      return o.xtc_probability > 0;
    case SamplerStep::temperature:
      return o.temperature != 1 || o.temperature_range > 0;
  }
  return false;
}

std::optional<PlainDraw> plain_draw(const SamplerOptions& o) {
  constexpr SamplerStep kOrder[] = {SamplerStep::top_k, SamplerStep::top_p, SamplerStep::min_p,
                                    SamplerStep::temperature};
  if (!o.bias.empty() || !o.banned.empty()) return std::nullopt;
  PlainDraw draw;
  const SamplerStep* next = kOrder;
  for (const SamplerStep step : o.active()) {
    if (reads_history(step)) return std::nullopt;
    if (o.temperature == 0) continue;
    next = std::find(next, std::end(kOrder), step);
    if (next == std::end(kOrder)) return std::nullopt;
    if (step == SamplerStep::top_k) draw.top_k = o.top_k;
    if (step == SamplerStep::top_p) draw.top_p = o.top_p;
    if (step == SamplerStep::min_p) draw.min_p = o.min_p;
    if (step == SamplerStep::temperature) draw.temperature = o.temperature;
  }
  if (o.temperature == 0) draw.temperature = 0;
  const bool narrows_otherwise = o.mirostat != 0 || o.temperature_range > 0;
  return o.temperature > 0 && narrows_otherwise ? std::nullopt : std::optional(draw);
}

}  // namespace

void SamplerOptions::check() const {
  expect(temperature >= 0 && temperature <= 100, "--temp", temperature, "0 to 100");
  expect(top_k >= 0, "--top-k", top_k, "0 or more");
  expect(top_p > 0 && top_p <= 1, "--top-p", top_p, "more than 0, at most 1");
  expect(min_p >= 0 && min_p <= 1, "--min-p", min_p, "0 to 1");
  expect(typical > 0 && typical <= 1, "--typical", typical, "more than 0, at most 1");
  expect(top_n_sigma >= 0, "--top-n-sigma", top_n_sigma, "0 or more");
  expect(xtc_probability >= 0 && xtc_probability <= 1, "--xtc-probability", xtc_probability,
         "0 to 1");
  expect(xtc_threshold >= 0 && xtc_threshold <= 1, "--xtc-threshold", xtc_threshold, "0 to 1");
  expect(temperature_range >= 0 && temperature_range <= temperature, "--dynatemp-range",
         temperature_range, fmt::format("0 to --temp, which is {}", temperature));
  expect(temperature_exponent > 0 && temperature_exponent <= 100, "--dynatemp-exp",
         temperature_exponent, "more than 0, at most 100");
  expect(mirostat == 0 || mirostat == 2, "--mirostat", mirostat, "0 or 2");
  expect(mirostat_target > 0, "--mirostat-ent", mirostat_target, "more than 0");
  expect(mirostat_rate > 0 && mirostat_rate <= 1, "--mirostat-lr", mirostat_rate,
         "more than 0, at most 1");
  expect(penalties.repeat > 0 && penalties.repeat <= 100, "--repeat-penalty", penalties.repeat,
         "more than 0, at most 100");
  expect(std::abs(penalties.presence) <= 100, "--presence-penalty", penalties.presence,
         "-100 to 100");
  expect(std::abs(penalties.frequency) <= 100, "--frequency-penalty", penalties.frequency,
         "-100 to 100");
  expect(dry.multiplier >= 0 && dry.multiplier <= 100, "--dry-multiplier", dry.multiplier,
         "0 to 100");
  expect(dry.base >= 1 && dry.base <= 100, "--dry-base", dry.base, "1 to 100");
  for (const std::string& text : banned)
    if (text.empty()) fail(Exit::usage, "--ban is empty, expected a text");
  for (size_t i = 1; i < steps.size(); ++i) {
    const char* name = kSamplerStepNames[int(steps[i])];
    if (std::count(steps.begin(), steps.end(), steps[i]) > 1)
      fail(Exit::usage, "--samplers has {} twice, expected once", name);
    if (reads_history(steps[i]) && !reads_history(steps[i - 1]))
      fail(Exit::usage, "--samplers has {} behind {}, expected in front of what narrows", name,
           kSamplerStepNames[int(steps[i - 1])]);
  }
}

std::vector<SamplerStep> SamplerOptions::active() const {
  std::vector<SamplerStep> active;
  for (const SamplerStep step : steps)
    if (changes(*this, step) && !(mirostat != 0 && narrows_by_mirostat(step)))
      active.push_back(step);
  return active;
}

Sampler::Sampler(const SamplerOptions& options, const Tokenizer* tokenizer, GrammarText* grammar)
    : options_(options), grammar_(grammar) {
  options_.check();
  steps_ = options_.active();
  if (!grammar_) plain_ = plain_draw(options_);
  if (!options_.banned.empty()) {
    ENSURE(tokenizer, "texts are banned where tokens have one");
    banned_.emplace(*tokenizer, options_.banned);
  }
  if (takes(SamplerStep::dry)) {
    ENSURE(tokenizer, "breakers are texts");
    breaks_ = tokens_with(*tokenizer, options_.dry.breakers);
  }
  for (const auto& [token, value] : options_.bias)
    if (tokenizer && token >= tokenizer->size())
      fail(Exit::usage, "--logit-bias has token {}, expected 0 to {}", token,
           tokenizer->size() - 1);
}

bool Sampler::takes(SamplerStep step) const {
  return std::find(steps_.begin(), steps_.end(), step) != steps_.end();
}

std::span<const float> Sampler::changed(std::span<const float> logits,
                                        std::span<const TokenId> history) {
  const bool steps = !steps_.empty() && reads_history(steps_[0]);
  if (!steps && !banned_ && options_.bias.empty()) return logits;
  logits_.assign(logits.begin(), logits.end());
  // A smaller model that guesses may have fewer tokens, and a grammar has left some out.
  const auto may_be = [&](TokenId token) {
    return size_t(token) < logits_.size() && logits_[size_t(token)] != -INFINITY;
  };
  for (const auto& [token, value] : options_.bias)
    if (may_be(token)) logits_[size_t(token)] += float(value);
  for (const SamplerStep step : steps_) {
    if (step == SamplerStep::penalties) penalize(logits_, history, options_.penalties);
    if (step == SamplerStep::dry) penalize(logits_, history, options_.dry, breaks_);
  }
  if (banned_)
    for (const TokenId token : banned_->after(history))
      if (may_be(token)) logits_[size_t(token)] = -INFINITY;
  const bool none =
      std::all_of(logits_.begin(), logits_.end(), [](float logit) { return logit == -INFINITY; });
  return none ? logits : logits_;
}

TokenId Sampler::draw(std::span<const float> logits, std::span<const TokenId> history) {
  if (grammar_) logits = grammar_->allowed(logits, history);
  logits = changed(logits, history);
  if (options_.temperature == 0)
    return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());

  auto step = std::find_if_not(steps_.begin(), steps_.end(), reads_history);
  const bool few = step != steps_.end() && *step == SamplerStep::top_k;
  candidates_.assign(logits, few ? options_.top_k : 0);
  for (step += few; step != steps_.end(); ++step) switch (*step) {
      case SamplerStep::top_k:
        candidates_.keep_top_k(options_.top_k);
        break;
      case SamplerStep::top_p:
        candidates_.keep_top_p(options_.top_p);
        break;
      case SamplerStep::min_p:
        candidates_.keep_min_p(options_.min_p);
        break;
      case SamplerStep::typical:
        candidates_.keep_typical(options_.typical);
        break;
      case SamplerStep::top_n_sigma:
        candidates_.keep_top_n_sigma(options_.top_n_sigma);
        break;
      case SamplerStep::xtc:
        if (uniform(options_.seed, history.size()) < options_.xtc_probability)
          candidates_.drop_top_choices(options_.xtc_threshold);
        break;
      case SamplerStep::temperature:
        candidates_.divide(temperature());
        break;
      case SamplerStep::penalties:
      case SamplerStep::dry:
        break;  // changed()
    }
  return options_.mirostat != 0 ? draw_mirostat(history.size()) : most(history.size());
}

double Sampler::temperature() {
  const double range = options_.temperature_range;
  if (range == 0) return options_.temperature;
  const double entropy = candidates_.relative_entropy(),
               part = entropy > 0 ? exp64(options_.temperature_exponent * log64(entropy)) : 0;
  return std::max(options_.temperature - range + 2 * range * part, 1e-6);
}

// Where a guess was wrong the text goes back, and with it the limit.
TokenId Sampler::draw_mirostat(size_t position) {
  while (!limits_.empty() && limits_.back().first > position) limits_.pop_back();
  const double limit = limits_.empty() ? 2 * options_.mirostat_target : limits_.back().second;
  candidates_.keep_within(limit);
  const TokenId drawn = most(position);
  const double bits = -candidates_.log_probability(drawn) / log64(2.0);
  limits_.emplace_back(position + 1,
                       limit - options_.mirostat_rate * (bits - options_.mirostat_target));
  return drawn;
}

TokenId Sampler::most(size_t position) {
  TokenId best = -1;
  double best_score = -INFINITY;
  for (const Candidate& c : candidates_.sorted()) {
    const double score = c.logit + gumbel(options_.seed, position, uint32_t(c.token));
    if (best < 0 || score > best_score) best_score = score, best = c.token;
  }
  return best;
}

LogProbabilities log_probabilities(std::span<const float> logits, TokenId drawn, int most) {
  Candidates candidates;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += exp64(x - largest);
  const double log_sum = largest + log64(sum);
  LogProbabilities out{logits[size_t(drawn)] - log_sum, {}};
  if (most > 0) candidates.assign(logits, most);
  if (most > 0)
    for (const Candidate& c : candidates.sorted())
      out.most.emplace_back(c.token, c.logit - log_sum);
  return out;
}

}  // namespace chaski
