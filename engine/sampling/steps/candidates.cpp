#include "engine/sampling/steps/candidates.h"

#include <algorithm>
#include <cmath>

#include "ggml-like-tensor/noise.h"

namespace chaski {

namespace {

constexpr auto kBefore = [](const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
};

}  // namespace

void Candidates::assign(std::span<const float> logits, int k) {
  all_.clear();
  sorted_ = false;
  const size_t n = logits.size(), most = k > 0 ? size_t(k) : n;
  size_t i = 0;
  for (; i < n && all_.size() < most; ++i)
    if (logits[i] != -INFINITY) all_.push_back({logits[i], TokenId(i)});
  if (i == n) return;
  // A heap whose front is the smallest logit that is kept: the other logits are compared only with
  // it. Of equal logits the earlier token is kept.
  std::make_heap(all_.begin(), all_.end(), kBefore);
  for (float least = float(all_.front().logit); i < n; ++i) {
    if (!(logits[i] > least)) continue;
    std::pop_heap(all_.begin(), all_.end(), kBefore);
    all_.back() = {logits[i], TokenId(i)};
    std::push_heap(all_.begin(), all_.end(), kBefore);
    least = float(all_.front().logit);
  }
}

std::span<const Candidate> Candidates::sorted() {
  if (!sorted_) std::sort(all_.begin(), all_.end(), kBefore);
  sorted_ = true;
  return all_;
}

double Candidates::largest() const {
  return sorted_ ? all_[0].logit : std::min_element(all_.begin(), all_.end(), kBefore)->logit;
}

double Candidates::sum() {
  const double most = sorted()[0].logit;
  double sum = 0;
  for (const Candidate& c : all_) sum += exp64(c.logit - most);
  return sum;
}

void Candidates::keep_first(size_t n) {
  sorted();
  all_.resize(std::min(all_.size(), n));
}

void Candidates::remove_first(size_t n) {
  sorted();
  all_.erase(all_.begin(), all_.begin() + ptrdiff_t(std::min(all_.size(), n)));
}

size_t Candidates::count_of_sum(double wanted) {
  const double most = sorted()[0].logit;
  double before = 0;
  size_t n = 0;
  for (; n < all_.size() && (n == 0 || before < wanted); ++n) before += exp64(all_[n].logit - most);
  return n;
}

void Candidates::keep_within(double bits) {
  const double least = all_.empty() ? 0 : largest() + log64(sum()) - bits * log64(2.0);
  // sum() has sorted the candidates. The first one stays, however large its surprise is.
  const auto below = std::find_if(all_.begin() + 1, all_.end(),
                                  [=](const Candidate& c) { return c.logit < least; });
  all_.erase(below, all_.end());
}

void Candidates::divide(double temperature) {
  for (Candidate& c : all_) c.logit /= temperature;
}

double Candidates::relative_entropy() {
  if (all_.size() < 2) return 0;
  const double total = sum(), most = all_[0].logit, log_total = log64(total);
  double entropy = 0;
  for (const Candidate& c : all_) {
    const double weight = exp64(c.logit - most);
    if (weight > 0) entropy += weight / total * (most + log_total - c.logit);
  }
  return std::clamp(entropy / log64(double(all_.size())), 0.0, 1.0);
}

double Candidates::log_probability(TokenId token) {
  const double log_total = log64(sum());
  for (const Candidate& c : all_)
    if (c.token == token) return c.logit - all_[0].logit - log_total;
  return -INFINITY;
}

}  // namespace chaski
