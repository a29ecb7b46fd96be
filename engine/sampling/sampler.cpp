#include "engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/grammar/grammar.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/noise.h"

namespace chaski {

std::string Range::text() const {
  const bool ends = most < std::numeric_limits<double>::infinity();
  if (!without_least)
    return ends ? fmt::format("{} to {}", least, most) : fmt::format("{} or more", least);
  return ends ? fmt::format("more than {}, at most {}", least, most)
              : fmt::format("more than {}", least);
}

namespace {

bool is_on(const SamplerOptions& o, SamplerStep step) {
  bool on = false;
  visit(step, [&]<class S>(std::type_identity<S>) { on = static_cast<const S&>(o).changes(); });
  return on;
}

template <class T>
void expect(bool holds, const char* flag, T value, const std::string& expected) {
  if (!holds) fail(Exit::usage, "{} is {}, expected {}", flag, value, expected);
}

// Nothing if a device cannot make this draw.
std::optional<PlainDraw> plain_draw(const SamplerOptions& o) {
  if (!o.bias.empty() || !o.banned.empty()) return std::nullopt;
  if (o.temperature > 0 && (o.mirostat != 0 || o.temperature_range > 0)) return std::nullopt;
  PlainDraw draw;
  int next = 0;
  bool can = true;
  for (const SamplerStep step : o.active())
    visit(step, [&]<class S>(std::type_identity<S>) {
      if (S::kKind == StepKind::logits) can = false;
      if (o.temperature == 0) return;
      if constexpr (requires { S::kPlaceOnDevice; }) {
        can = can && S::kPlaceOnDevice >= next;
        next = S::kPlaceOnDevice;
        static_cast<const S&>(o).put(draw);
      } else {
        can = false;
      }
    });
  if (o.temperature == 0) draw.temperature = 0;
  return can ? std::optional(draw) : std::nullopt;
}

// Underscores are read as dashes, because llama.cpp writes step names with underscores.
SamplerStep step_of(std::string name, const std::string& field) {
  std::replace(name.begin(), name.end(), '_', '-');
  std::optional<SamplerStep> step;
  SamplerSteps::each([&]<class S>(std::type_identity<S>) {
    if (name == S::kName) step = kStep<S>;
    if constexpr (requires { S::kAlias; })
      if (name == S::kAlias) step = kStep<S>;
  });
  if (!step)
    fail(Exit::usage, "{} has {}, expected {}", field, escaped(name),
         fmt::join(sampler_step_names(), ", "));
  return *step;
}

}  // namespace

std::vector<std::string> sampler_step_names() {
  std::vector<std::string> names;
  SamplerSteps::each([&]<class S>(std::type_identity<S>) { names.emplace_back(S::kName); });
  return names;
}

std::vector<SamplerStep> sampler_steps(const std::string& list, const std::string& field) {
  std::vector<SamplerStep> steps;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find_first_of(",;", begin), list.size());
    steps.push_back(step_of(list.substr(begin, end - begin), field));
    begin = end + 1;
  }
  return steps;
}

void SamplerOptions::check() const {
  each_parameter(*this, [](const auto& part, const auto& p) {
    const auto& value = part.*p.value;
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>)
      if (!p.range.holds(double(value))) expect(false, p.flag, value, p.range.text());
  });
  if (temperature_range < 0 || temperature_range > temperature)
    expect(false, "--dynatemp-range", temperature_range,
           fmt::format("0 to --temp, which is {}", temperature));
  expect(mirostat == 0 || mirostat == 2, "--mirostat", mirostat, "0 or 2");
  for (const std::string& text : banned)
    if (text.empty()) fail(Exit::usage, "--ban is empty, expected a text");
  for (size_t i = 1; i < steps.size(); ++i) {
    const char* name = name_of(steps[i]);
    if (std::count(steps.begin(), steps.end(), steps[i]) > 1)
      fail(Exit::usage, "--samplers has {} twice, expected once", name);
    if (kind_of(steps[i]) == StepKind::logits && kind_of(steps[i - 1]) != StepKind::logits)
      fail(Exit::usage, "--samplers has {} after {}, expected it before all steps that drop tokens",
           name, name_of(steps[i - 1]));
  }
}

std::vector<SamplerStep> SamplerOptions::active() const {
  std::vector<SamplerStep> active;
  for (const SamplerStep step : steps)
    if (is_on(*this, step) && !(mirostat != 0 && kind_of(step) == StepKind::narrowing))
      active.push_back(step);
  return active;
}

bool SamplerOptions::changes_logits() const {
  return std::ranges::any_of(all_sampler_steps(), [&](SamplerStep step) {
    return kind_of(step) == StepKind::logits && is_on(*this, step);
  });
}

SamplerOptions SamplerOptions::greedy() const {
  SamplerOptions left;
  left.temperature = 0, left.banned = banned, left.seed = seed;
  SamplerSteps::each([&]<class S>(std::type_identity<S>) {
    if (S::kKind == StepKind::logits) static_cast<S&>(left) = static_cast<const S&>(*this);
  });
  return left;
}

Sampler::Sampler(const SamplerOptions& options, const Tokenizer* tokenizer, GrammarText* grammar)
    : options_(options), grammar_(grammar) {
  options_.check();
  steps_ = options_.active();
  if (!grammar_) plain_ = plain_draw(options_);
  if (!options_.banned.empty()) {
    ENSURE(tokenizer, "banned texts need a tokenizer");
    banned_.emplace(*tokenizer, options_.banned);
  }
  for (const SamplerStep step : steps_)
    visit(step, [&]<class S>(std::type_identity<S>) {
      if constexpr (requires { typename S::State; })
        std::get<size_t(kStep<S>)>(states_) = static_cast<const S&>(options_).prepare(tokenizer);
    });
  for (const auto& [token, value] : options_.bias)
    if (tokenizer && token >= tokenizer->size())
      fail(Exit::usage, "--logit-bias has token {}, expected 0 to {}", token,
           tokenizer->size() - 1);
}

std::span<const float> Sampler::changed(std::span<const float> logits,
                                        std::span<const TokenId> history) {
  const bool steps = !steps_.empty() && kind_of(steps_[0]) == StepKind::logits;
  if (!steps && !banned_ && options_.bias.empty()) return logits;
  logits_.assign(logits.begin(), logits.end());
  // A draft model may have fewer tokens, and a grammar has removed some.
  const auto may_be_drawn = [&](TokenId token) {
    return size_t(token) < logits_.size() && logits_[size_t(token)] != -INFINITY;
  };
  for (const auto& [token, value] : options_.bias)
    if (may_be_drawn(token)) logits_[size_t(token)] += float(value);
  for (const SamplerStep step : steps_)
    visit(step, [&]<class S>(std::type_identity<S>) {
      const S& s = options_;
      if constexpr (requires { typename S::State; })
        s.change(logits_, history, std::get<size_t(kStep<S>)>(states_));
      else if constexpr (S::kKind == StepKind::logits)
        s.change(logits_, history);
    });
  if (banned_)
    for (const TokenId token : banned_->after(history))
      if (may_be_drawn(token)) logits_[size_t(token)] = -INFINITY;
  const bool none =
      std::all_of(logits_.begin(), logits_.end(), [](float logit) { return logit == -INFINITY; });
  return none ? logits : logits_;
}

TokenId Sampler::draw(std::span<const float> logits, std::span<const TokenId> history) {
  if (grammar_) logits = grammar_->allowed(logits, history);
  logits = changed(logits, history);
  if (options_.temperature == 0)
    return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());

  auto step = std::find_if_not(steps_.begin(), steps_.end(),
                               [](SamplerStep s) { return kind_of(s) == StepKind::logits; });
  int most = 0;
  if (step != steps_.end())
    visit(*step, [&]<class S>(std::type_identity<S>) {
      if constexpr (requires(const S& s) { s.most_candidates(); })
        most = static_cast<const S&>(options_).most_candidates();
    });
  candidates_.assign(logits, most);
  if (most > 0) ++step;
  for (; step != steps_.end(); ++step)
    visit(*step, [&]<class S>(std::type_identity<S>) {
      if constexpr (S::kKind != StepKind::logits)
        static_cast<const S&>(options_).narrow(candidates_, {options_.seed, history.size()});
    });
  return options_.mirostat != 0 ? draw_mirostat(history.size()) : gumbel_max(history.size());
}

// After a rejected draft the text is shorter, and the limit is that of the earlier position again.
TokenId Sampler::draw_mirostat(size_t position) {
  while (!limits_.empty() && limits_.back().first > position) limits_.pop_back();
  const double limit = limits_.empty() ? 2 * options_.mirostat_target : limits_.back().second;
  candidates_.keep_within(limit);
  const TokenId drawn = gumbel_max(position);
  const double bits = -candidates_.log_probability(drawn) / log64(2.0);
  limits_.emplace_back(position + 1,
                       limit - options_.mirostat_rate * (bits - options_.mirostat_target));
  return drawn;
}

TokenId Sampler::gumbel_max(size_t position) {
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
