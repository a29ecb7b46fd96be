#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

template <class T>
void expect(bool holds, const char* flag, T value, const char* range) {
  if (!holds) fail(Exit::usage, "{} is {}, expected {}", flag, value, range);
}

// Larger logit first, then the smaller id: one order, so that nothing depends on how candidates
// were found.
constexpr auto kBefore = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
};

}  // namespace

void SamplerOptions::check() const {
  expect(temperature >= 0 && temperature <= 100, "--temp", temperature, "0 to 100");
  expect(top_k >= 0, "--top-k", top_k, "0 or more");
  expect(top_p > 0 && top_p <= 1, "--top-p", top_p, "more than 0, at most 1");
  expect(min_p >= 0 && min_p <= 1, "--min-p", min_p, "0 to 1");
  expect(repeat_penalty > 0 && repeat_penalty <= 100, "--repeat-penalty", repeat_penalty,
         "more than 0, at most 100");
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) { options_.check(); }

TokenId Sampler::draw(std::span<const float> logits, std::span<const TokenId> history) {
  if (options_.repeat_penalty != 1) {
    logits_.assign(logits.begin(), logits.end());
    std::vector<TokenId> recent(
        history.end() - std::min<ptrdiff_t>(std::ssize(history), options_.repeat_window),
        history.end());
    std::sort(recent.begin(), recent.end());
    recent.erase(std::unique(recent.begin(), recent.end()), recent.end());
    for (TokenId t : recent) {
      float& x = logits_[size_t(t)];
      x = x > 0 ? float(x / options_.repeat_penalty) : float(x * options_.repeat_penalty);
    }
    logits = logits_;
  }
  if (options_.temperature == 0)
    return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());

  // Top-k with a heap whose front is the worst kept: most logits are compared once.
  kept_.clear();
  const size_t k = options_.top_k > 0 ? size_t(options_.top_k) : logits.size();
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate c{logits[i], TokenId(i)};
    if (kept_.size() == k) {
      if (!kBefore(c, kept_.front())) continue;
      std::pop_heap(kept_.begin(), kept_.end(), kBefore);
      kept_.pop_back();
    }
    kept_.push_back(c);
    if (k < logits.size()) std::push_heap(kept_.begin(), kept_.end(), kBefore);
  }
  std::sort(kept_.begin(), kept_.end(), kBefore);

  const double most = kept_[0].logit;
  double sum = 0, before = 0;
  for (const Candidate& c : kept_) sum += exp64(c.logit - most);
  size_t n = 0;
  for (; n < kept_.size(); ++n) {
    const double p = exp64(kept_[n].logit - most);
    if (n > 0 && (before >= options_.top_p * sum || p < options_.min_p)) break;
    before += p;
  }

  TokenId best = kept_[0].token;
  double best_score = -INFINITY;
  for (size_t i = 0; i < n; ++i) {
    const double score = kept_[i].logit / options_.temperature +
                         gumbel(options_.seed, history.size(), uint32_t(kept_[i].token));
    if (score > best_score) best_score = score, best = kept_[i].token;
  }
  return best;
}

double log_probability(std::span<const float> logits, TokenId token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += exp64(x - most);
  return logits[size_t(token)] - most - log64(sum);
}

}  // namespace chaski
