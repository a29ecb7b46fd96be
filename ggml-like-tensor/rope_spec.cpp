#include "ggml-like-tensor/rope_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace chaski {

namespace {

constexpr double kTau = 2 * std::numbers::pi;

// Llama 3.1: long waves are divided by factor, short ones kept, a straight line between.
double llama3(const RopeSpec& r, double frequency) {
  const double turns = double(r.original_context) * frequency / kTau;  // over the original context
  if (turns < r.low_freq_factor) return frequency / r.factor;
  if (turns > r.high_freq_factor) return frequency;
  const double smooth = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - smooth) * frequency / r.factor + smooth * frequency;
}

// The pair (as a real number) that turns `turns` times over the original context.
double pair_of_turns(const RopeSpec& r, double turns) {
  return r.dim * std::log(double(r.original_context) / (turns * kTau)) / (2 * std::log(r.theta));
}

double yarn(const RopeSpec& r, int pair, double frequency) {
  const double low = std::max(0.0, std::floor(pair_of_turns(r, r.beta_fast)));
  double high = std::min(r.dim - 1.0, std::ceil(pair_of_turns(r, r.beta_slow)));
  if (high <= low) high = low + 0.001;
  const double ramp = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return frequency / r.factor * ramp + frequency * (1 - ramp);
}

}  // namespace

std::vector<double> RopeSpec::frequencies() const {
  std::vector<double> out(dim / 2);
  for (int i = 0; i < dim / 2; ++i) {
    double f = std::pow(theta, -2.0 * i / dim);
    if (!freq_factors.empty()) f /= freq_factors[i];
    if (scaling == RopeScaling::linear) f /= factor;
    if (scaling == RopeScaling::llama3) f = llama3(*this, f);
    if (scaling == RopeScaling::yarn) f = yarn(*this, i, f);
    out[i] = f;
  }
  return out;
}

double RopeSpec::magnitude() const {
  if (scaling != RopeScaling::yarn) return 1;
  if (attention_factor > 0) return attention_factor;
  return factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}

void RopeSpec::append(std::vector<float>& table, int64_t from, int64_t to) const {
  const std::vector<double> f = frequencies();
  const double scale = magnitude();
  table.reserve(size_t(to) * dim);
  for (int64_t p = from; p < to; ++p)
    for (double w : f) {
      table.push_back(float(scale * std::cos(double(p) * w)));
      table.push_back(float(scale * std::sin(double(p) * w)));
    }
}

}  // namespace chaski
