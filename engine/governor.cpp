#include "engine/governor.h"

#include <algorithm>

namespace chaski {

namespace {

// How many guesses are remembered: topics of a text change.
constexpr int kMemory = 64;
// What is not known: a token more in a pass costs this share of one, and a guess is right this
// often.
constexpr double kTokenMore = 0.06, kRight = 0.5;
// Gains below this are not worth the risk.
constexpr double kWorthIt = 1.05;
// Passes without guesses come first, and then one again after so many: fewer as long as few were
// measured.
constexpr int kPlainFirst = 5, kPlainAgain = 64;
// Places beyond those that seem to pay are looked at in one pass of so many.
constexpr int kFurtherAgain = 32;

}  // namespace

void Governor::Median::add(double x) {
  last[size_t(n++) % last.size()] = x;
  std::array<double, 15> sorted = last;
  const auto end = sorted.begin() + std::min(n, int(last.size()));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  value = *middle;
}

void Governor::Average::add(double x) {
  n = std::min(n + 1, kMemory);
  mean += (x - mean) / n;
}

// Between those that were measured on a line, and beyond them with the slope that is assumed. More
// tokens never take less.
double Governor::pass_seconds(int tokens) const {
  int below = tokens, above = tokens;
  while (below > 1 && pass_[size_t(below)].n == 0) --below;
  while (above < kMost + 1 && pass_[size_t(above)].n == 0) ++above;
  const double least = pass_[1].value, first = std::max(pass_[size_t(below)].value, least);
  if (below == tokens) return first;
  if (pass_[size_t(above)].n == 0) return first + (tokens - below) * kTokenMore * least;
  const double last = std::max(pass_[size_t(above)].value, first);
  return first + (last - first) * (tokens - below) / (above - below);
}

// Of a place that was never reached, what is known of the place before it.
double Governor::right(int kind, int place) const {
  constexpr double kDoubt = 1;  // guesses' worth of what is assumed
  double p = kRight;
  for (int i = 0; i <= place; ++i) {
    const Average& seen = right_[size_t(kind)][size_t(i)];
    p = (seen.mean * seen.n + p * kDoubt) / (seen.n + kDoubt);
  }
  return p;
}

int Governor::length(int kind, int most) {
  ++passes_;
  most = std::min(most, kMost);
  if (kind < 0 || most <= 0) return 0;
  if (pass_[1].n < kPlainFirst) return 0;
  if (passes_ - plain_at_ > kPlainAgain * std::min(pass_[1].n, 8) / 8) return 0;
  const double plain = 1 / pass_seconds(1);
  double tokens = 1, reached = 1, best = plain * kWorthIt;
  int length = 0;
  for (int k = 1; k <= most; ++k) {
    tokens += reached *= right(kind, k - 1);
    const double rate = tokens / (pass_seconds(k + 1) + k * guess_.value);
    if (rate > best) best = rate, length = k;
  }
  if (length > 0) return passes_ % kFurtherAgain ? length : std::min(2 * length, most);
  // What once did not pay is tried again, ever more rarely.
  if (passes_ - tried_at_ <= patience_) return 0;
  tried_at_ = passes_, patience_ = std::min(patience_ * 2, 1024);
  return 1;
}

double Governor::speed_up() const {
  double spent = drafting_;
  for (const Median& pass : pass_) spent += pass.n * pass.value;
  return spent > 0 ? double(made_) * pass_[1].value / spent : 0;
}

bool Governor::cheap() const {
  return guess_.n > 0 && pass_[1].n > 0 && guess_.value < 0.002 * pass_[1].value;
}

void Governor::learn(const Outcome& o) {
  pass_[size_t(o.guesses) + 1].add(o.passing);
  drafting_ += o.drafting, made_ += o.right + 1;
  if (o.guesses == 0) {
    plain_at_ = passes_;
    return;
  }
  guess_.add(o.drafting / o.guesses);
  for (int i = 0; i < std::min(o.guesses, o.right + 1); ++i)
    right_[size_t(o.kind)][size_t(i)].add(i < o.right ? 1 : 0);
}

void Governor::learn_unasked(int kind, bool right) {
  if (kind >= 0) right_[size_t(kind)][0].add(right ? 1 : 0);
}

}  // namespace chaski
