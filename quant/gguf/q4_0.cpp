// The encoders of q4_0 and q5_0. Codes range from kLow to -kLow - 1.
#include "quant/gguf/q4_0.h"

#include <array>

#include "quant/gguf/q5.h"
#include "quant/rounding.h"

namespace chaski {

namespace {

// The code of x for a scale of 1, as a float.
template <int kLow>
inline float code_of(float x) {
  return std::min(float(-kLow - 1), std::max(float(kLow), nearest(x)));
}

template <int kLow>
inline void codes_of(const float* x, float inverse, float* q) {
  for (int i = 0; i < 32; ++i) q[i] = code_of<kLow>(x[i] * inverse);
}

struct Fit {
  float xq = 0, qq = 0;
  // Squared error with scale d, minus the constant <x, x>.
  float error(float d) const { return d * (d * qq - 2 * xq); }
};

inline Fit fit(const float* x, const float* factors, const float* q) {
  float xq[8] = {}, qq[8] = {};
  for (int i = 0; i < 32; i += 8)
    for (int k = 0; k < 8; ++k) {
      const float fq = factors[i + k] * q[i + k];
      xq[k] += x[i + k] * fq, qq[k] += q[i + k] * fq;
    }
  Fit sum;
  for (int k = 0; k < 8; ++k) sum.xq += xq[k], sum.qq += qq[k];
  return sum;
}

// Searches for the f16 scale of least squared error. It tries 32 candidates around max / kLow and
// max / -kLow, and refits each to its codes, <x, q> / <q, q>. Two more rounds start from the best
// one (Lloyd 1982 with a fixed codebook).
template <int kLow>
float scale_of(const float* x, const float* factors) {
  const float most = max_abs(x, 32);
  float q[32], best_error = 0, best_d = 0;
  // Computes the codes of x / d, then refits the scale to them, rounded to f16.
  auto consider = [&](float inverse) {
    codes_of<kLow>(x, inverse, q);
    const Fit f = fit(x, factors, q);
    const float d = f.qq > 0 ? f32_of_f16(f16_of_f32(f.xq / f.qq)) : 0;
    if (d != 0 && std::isfinite(d) && f.error(d) < best_error) best_error = f.error(d), best_d = d;
  };
  for (int step = -7; step <= 8 && most > 0; ++step)
    // the end of the codes that the largest value is near
    for (float sign : {-1.0f, 1.0f}) consider(sign * (float(-kLow) - 0.4f + 0.14f * step) / most);
  for (int i = 0; i < 2 && best_d != 0; ++i) consider(1 / best_d);
  return best_d;
}

template <class F, int kLow>
void encode_all(const float* x, const float* factors, typename F::Block& block) {
  const float d = scale_of<kLow>(x, factors);
  block = {};
  block.d = f16_of_f32(d);
  float q[32];
  codes_of<kLow>(x, d != 0 ? 1 / d : 0, q);
  for (int i = 0; i < 32; ++i) F::put_code(block, i, int(q[i]) - kLow);
}

// The value of largest magnitude gets the code kLow, because that side reaches one further.
template <class F, int kLow>
void encode_at_once(const float* x, typename F::Block& block) {
  static constexpr std::array<float, 32> kEqual = [] {
    std::array<float, 32> ones;
    ones.fill(1);
    return ones;
  }();
  float lowest[4] = {}, highest[4] = {}, q[32];  // four chains: no step waits for another
  for (int i = 0; i < 32; i += 4)
    for (int k = 0; k < 4; ++k) {
      lowest[k] = std::min(lowest[k], x[i + k]);
      highest[k] = std::max(highest[k], x[i + k]);
    }
  const float least = *std::min_element(lowest, lowest + 4),
              most = *std::max_element(highest, highest + 4),
              largest = -least > most ? least : most;
  block = {};
  codes_of<kLow>(x, largest != 0 ? float(kLow) / largest : 0, q);
  const Fit f = fit(x, kEqual.data(), q);
  block.d = f16_of_f32(f.qq > 0 ? f.xq / f.qq : 0);
  const float d = f32_of_f16(block.d);
  codes_of<kLow>(x, d != 0 ? 1 / d : 0, q);
  for (int i = 0; i < 32; ++i) F::put_code(block, i, int(q[i]) - kLow);
}

template <class F, int kLow>
void round_one(typename F::Block& block, int i, float x) {
  const float d = f32_of_f16(block.d);
  F::put_code(block, i, int(d != 0 ? code_of<kLow>(x / d) : 0) - kLow);
}

}  // namespace

void Q4_0::encode(const float* x, const float* factors, Effort effort, Block& block) {
  if (effort == Effort::fast) return encode_at_once<Q4_0, -8>(x, block);
  encode_all<Q4_0, -8>(x, factors, block);
}

void Q4_0::round(Block& block, int i, float x) { round_one<Q4_0, -8>(block, i, x); }

void Q5_0::encode(const float* x, const float* factors, Effort effort, Block& block) {
  if (effort == Effort::fast) return encode_at_once<Q5_0, -16>(x, block);
  encode_all<Q5_0, -16>(x, factors, block);
}
void Q5_0::round(Block& block, int i, float x) { round_one<Q5_0, -16>(block, i, x); }

}  // namespace chaski
