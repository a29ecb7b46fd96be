#include "engine/requests/prompt_portion.h"

#include <algorithm>
#include <bit>
#include <cmath>

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
  alone_ = decoding > 0 ? 0 : alone_ + seconds;
  const size_t width = std::min(size_t(decoding), kWidths - 1);
  if (prompt == 0) {
    step_[width].add(seconds);
    step_[width].pass = passes_;
    return;
  }
  const double step = decoding > 0 ? step_seconds(decoding) : 0;
  if (decoding > 0 && step == 0) return;
  const size_t size = std::min(size_t(std::bit_width(unsigned(prompt))), kSizes - 1);
  Recent& cost = (decoding > 0 ? shared_costs_ : alone_costs_)[size];
  cost.add(std::max(seconds - step, 0.0) / prompt);
  cost.pass = passes_;
}

double PromptPortion::step_seconds(int decoding) const {
  return step_[std::min(size_t(decoding), kWidths - 1)].value();
}

// An unknown size has the cost of the nearest smaller one, which is an upper bound.
double PromptPortion::seconds_of(const Costs& costs, int prompt) const {
  const size_t size = std::min(size_t(std::bit_width(unsigned(prompt))), kSizes - 1);
  for (size_t s = size; s > 0; --s)
    if (is_new(costs[s])) return prompt * costs[s].value();
  for (size_t s = size; s < kSizes; ++s)
    if (is_new(costs[s])) return prompt * costs[s].value();
  return 0;
}

// The largest portion that takes at most `seconds`.
int PromptPortion::largest(const Costs& costs, double seconds, int least, int most) const {
  int chosen = std::min(most, least);
  if (seconds_of(costs, 1) == 0) return std::min(most, std::max(chosen, kFirst));
  for (int n = 1; n <= most; n += n < kFirst ? 1 : n < 4 * kFirst ? kFirst / 4 : kFirst)
    if (seconds_of(costs, n) <= seconds) chosen = std::max(chosen, n);
  return chosen;
}

int PromptPortion::how_late(int decoding, int tokens, double waited) const {
  const double step = step_seconds(decoding), one_reads = most_slowdown_ * step;
  if (step == 0 || seconds_of(shared_costs_, 1) == 0) return 0;
  const int portion = largest(shared_costs_, one_reads - step, kLeast, tokens);
  return int(std::min(waited * portion / (one_reads * tokens), 64.0));
}

PromptPortion::Choice PromptPortion::next(int decoding, int reading, int most, bool shared) const {
  if (most_slowdown_ <= 0) return {most, true};
  const double alone = shared ? kMostPass : kMostReading;
  if (decoding == 0) return {largest(alone_costs_, alone, kLeastReading, most), true};
  const Recent& step = step_[std::min(size_t(decoding), kWidths - 1)];
  if (!is_new(step)) return {0, true};
  const double one_reads = most_slowdown_ * step.value(),
               half = (1 + most_slowdown_) / 2 * step.value(),
               most_between = std::max(kMostBetween, kMostSteps * step.value()),
               between =
                   std::max(one_reads, std::min(std::ldexp(one_reads, reading - 1), most_between)),
               left = between - one_reads - alone_;
  const double known = seconds_of(alone_costs_, kFirst),
               least = known > 0 ? known : seconds_of(shared_costs_, kFirst);
  if (left > 0 && least <= left)
    return {largest(alone_costs_, std::min(left, alone), kLeast, most), false};
  const double pass = shared ? std::min(one_reads, std::max(half, kMostPass))
                             : std::max(one_reads, between - alone_);
  return {largest(shared_costs_, pass - step.value(), kLeast, most), true};
}

}  // namespace chaski
