#include "engine/requests/prompt_portion.h"

#include <algorithm>
#include <bit>

namespace chaski {

void PromptPortion::Recent::add(double x) {
  last_[n_++ % kRecent] = x;
  std::array<double, kRecent> sorted = last_;
  const size_t n = std::min(n_, kRecent);
  const auto at = sorted.begin() + ptrdiff_t(n / 2);
  std::nth_element(sorted.begin(), at, sorted.begin() + ptrdiff_t(n));
  value_ = *at;
}

void PromptPortion::learn(int decoding, int prompt, double seconds) {
  ++passes_;
  const size_t width = std::min(size_t(decoding), kWidths - 1);
  if (prompt == 0) {
    step_[width].add(seconds);
    step_[width].pass = passes_;
    return;
  }
  const double step = decoding > 0 ? step_seconds(decoding) : 0;
  if (decoding > 0 && step == 0) return;
  const size_t size = std::min(size_t(std::bit_width(unsigned(prompt))), kSizes - 1);
  cost_[size].add(std::max(seconds - step, 0.0) / prompt);
  cost_[size].pass = passes_;
}

double PromptPortion::step_seconds(int decoding) const {
  return step_[std::min(size_t(decoding), kWidths - 1)].value();
}

// An unknown size has the cost of the nearest smaller one, which is an upper bound.
double PromptPortion::seconds_of(int prompt) const {
  const size_t size = std::min(size_t(std::bit_width(unsigned(prompt))), kSizes - 1);
  for (size_t s = size; s > 0; --s)
    if (is_new(cost_[s])) return prompt * cost_[s].value();
  for (size_t s = size; s < kSizes; ++s)
    if (is_new(cost_[s])) return prompt * cost_[s].value();
  return 0;
}

int PromptPortion::tokens(int decoding, int most) const {
  if (most_slowdown_ <= 0) return most;
  double left = kMostReading;
  int chosen = std::min(most, decoding > 0 ? kLeast : kLeastReading);
  if (decoding > 0) {
    const Recent& step = step_[std::min(size_t(decoding), kWidths - 1)];
    if (!is_new(step)) return 0;
    const double whole = most_slowdown_ * step.value(),
                 half = (1 + most_slowdown_) / 2 * step.value();
    left = std::min(whole, std::max(half, kMostPass)) - step.value();
  }
  if (seconds_of(1) == 0) return std::min(most, std::max(chosen, kFirst));
  for (int n = 1; n <= most; n = n < kFirst ? 2 * n : n + kFirst)
    if (seconds_of(n) <= left) chosen = std::max(chosen, n);
  return chosen;
}

}  // namespace chaski
