#include "ggml-like-tensor/rope_spec.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace chaski {

namespace {

constexpr double kTau = 2 * std::numbers::pi;

// Llama 3.1: long waves are divided by factor, short ones are kept, and between them it
// interpolates linearly.
double llama3(const RopeSpec& r, double frequency) {
  const double turns = double(r.original_context) * frequency / kTau;  // over the original context
  if (turns < r.low_freq_factor) return frequency / r.factor;
  if (turns > r.high_freq_factor) return frequency;
  const double smooth = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - smooth) * frequency / r.factor + smooth * frequency;
}

// The pair, as a real number, that turns `turns` times over the original context.
double pair_of_turns(const RopeSpec& r, double turns) {
  return r.dim * std::log(double(r.original_context) / (turns * kTau)) / (2 * std::log(r.theta));
}

double yarn(const RopeSpec& r, int pair, double frequency) {
  double low = pair_of_turns(r, r.beta_fast), high = pair_of_turns(r, r.beta_slow);
  if (r.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(0.0, low), high = std::min(r.dim - 1.0, high);
  if (high == low) high += 0.001;
  const double ramp = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return frequency / r.factor * ramp + frequency * (1 - ramp);
}

// The theta for which the longest wave has the same angles over `context` positions as it had over
// the original context.
double dynamic_theta(const RopeSpec& r) {
  const double stretch = double(r.context) / double(r.original_context);
  return r.theta * std::pow(r.factor * stretch - (r.factor - 1), r.dim / (r.dim - 2.0));
}

double yarn_magnitude(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1;
}

}  // namespace

std::vector<double> RopeSpec::frequencies() const {
  const bool beyond = context > original_context;
  const double base =
      scaling == RopeScaling::dynamic && beyond && dim > 2 ? dynamic_theta(*this) : theta;
  const std::vector<float>& divisors = beyond ? long_factors : short_factors;
  std::vector<double> out(dim / 2);
  for (int i = 0; i < dim / 2; ++i) {
    double f = std::pow(base, -2.0 * i / dim);
    if (!freq_factors.empty()) f /= freq_factors[i];
    if (scaling == RopeScaling::linear) f /= factor;
    if (scaling == RopeScaling::llama3) f = llama3(*this, f);
    if (scaling == RopeScaling::yarn) f = yarn(*this, i, f);
    if (scaling == RopeScaling::longrope) f /= divisors[i];
    out[i] = f;
  }
  return out;
}

double RopeSpec::magnitude() const {
  if (scaling != RopeScaling::yarn && scaling != RopeScaling::longrope) return 1;
  if (attention_factor > 0) return attention_factor;
  if (scaling == RopeScaling::longrope)
    return factor > 1 ? std::sqrt(1 + std::log(factor) / std::log(double(original_context))) : 1;
  if (mscale > 0 && mscale_all_dim > 0)
    return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim);
  return yarn_magnitude(factor, 1);
}

void RopeSpec::average(float* head, int64_t positions) const {
  const std::vector<double> f = frequencies();
  const double n = double(positions);
  for (size_t i = 0; i < f.size(); ++i, head += 2) {
    // The sum of e^(i f p) over p < n is (e^(i f n) - 1) / (e^(i f) - 1).
    const std::complex<double> step = std::polar(1.0, f[i]) - 1.0;
    const std::complex<double> mean =
        step == 0.0 ? 1.0 : (std::polar(1.0, f[i] * n) - 1.0) / step / n;
    const std::complex<double> pair = mean * magnitude() * std::complex<double>(head[0], head[1]);
    head[0] = float(pair.real()), head[1] = float(pair.imag());
  }
}

void RopeSpec::append(std::vector<float>& table, int64_t from, int64_t to) const {
  const std::vector<double> f = frequencies();
  const double all = magnitude();
  table.reserve(size_t(to) * dim);
  for (int64_t p = from; p < to; ++p) {
    const int64_t spans = temperature == 0 ? 0 : (p + temperature_offset) / original_context;
    const double scale = all * (1 + temperature * std::log1p(double(spans)));
    for (double w : f) {
      table.push_back(float(scale * std::cos(double(p) * w)));
      table.push_back(float(scale * std::sin(double(p) * w)));
    }
  }
}

}  // namespace chaski
