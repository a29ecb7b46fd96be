#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// Philox 4x32 with 10 rounds: four words of noise for a 128-bit counter and a 64-bit key.
struct Philox {
  uint32_t c[4];
  uint32_t key[2];
  void round() {
    const uint64_t a = uint64_t(0xD2511F53) * c[0], b = uint64_t(0xCD9E8D57) * c[2];
    const uint32_t next[4] = {uint32_t(b >> 32) ^ c[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ key[1], uint32_t(a)};
    std::copy(next, next + 4, c);
  }
  uint32_t first_word() {
    for (int i = 0; i < 10; ++i) {
      round();
      key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
    }
    return c[0];
  }
};

template <class T>
void expect(bool holds, const char* flag, T value, const char* range) {
  if (!holds) fail(Exit::usage, "{} is {}, expected {}", flag, value, range);
}

// Larger logit first, then the smaller id: one order, so that nothing depends on how candidates were found.
constexpr auto kBefore = [](const auto& a, const auto& b) { return a.logit != b.logit ? a.logit > b.logit : a.token < b.token; };

}  // namespace

double gumbel(uint64_t seed, uint64_t position, uint32_t token) {
  Philox p{{token, uint32_t(position), uint32_t(position >> 32), 0}, {uint32_t(seed), uint32_t(seed >> 32)}};
  const double u = (p.first_word() + 0.5) * 0x1p-32;
  return -std::log(-std::log(u));
}

void SamplerOptions::check() const {
  expect(temperature >= 0 && temperature <= 100, "--temp", temperature, "0 to 100");
  expect(top_k >= 0, "--top-k", top_k, "0 or more");
  expect(top_p > 0 && top_p <= 1, "--top-p", top_p, "more than 0, at most 1");
  expect(min_p >= 0 && min_p <= 1, "--min-p", min_p, "0 to 1");
  expect(repeat_penalty > 0 && repeat_penalty <= 100, "--repeat-penalty", repeat_penalty, "more than 0, at most 100");
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) { options_.check(); }

TokenId Sampler::draw(std::span<const float> logits, std::span<const TokenId> history) {
  if (options_.repeat_penalty != 1) {
    logits_.assign(logits.begin(), logits.end());
    std::vector<TokenId> recent(history.end() - std::min<ptrdiff_t>(std::ssize(history), options_.repeat_window), history.end());
    std::sort(recent.begin(), recent.end());
    recent.erase(std::unique(recent.begin(), recent.end()), recent.end());
    for (TokenId t : recent) {
      float& x = logits_[size_t(t)];
      x = x > 0 ? float(x / options_.repeat_penalty) : float(x * options_.repeat_penalty);
    }
    logits = logits_;
  }
  if (options_.temperature == 0) return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());

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
  for (const Candidate& c : kept_) sum += std::exp(c.logit - most);
  size_t n = 0;
  for (; n < kept_.size(); ++n) {
    const double p = std::exp(kept_[n].logit - most);
    if (n > 0 && (before >= options_.top_p * sum || p < options_.min_p)) break;
    before += p;
  }

  TokenId best = kept_[0].token;
  double best_score = -INFINITY;
  for (size_t i = 0; i < n; ++i) {
    const double score = kept_[i].logit / options_.temperature + gumbel(options_.seed, history.size(), uint32_t(kept_[i].token));
    if (score > best_score) best_score = score, best = kept_[i].token;
  }
  return best;
}

}  // namespace chaski
