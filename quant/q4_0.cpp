// The encoder of q4_0.
#include "quant/q4_0.h"

#include "quant/rounding.h"

namespace chaski {

namespace {

// The codes of x for a scale, -8..7, as floats.
inline void codes_of(const float* x, float inverse, float* q) {
  for (int i = 0; i < 32; ++i) q[i] = std::min(7.0f, std::max(-8.0f, nearest(x[i] * inverse)));
}

struct Fit {
  float xq = 0, qq = 0;
  // Squared error, less the constant <x, x>, with scale d.
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

}  // namespace

void Q4_0::encode(const float* x, const float* factors, Block& block) {
  const float most = max_abs(x, 32);
  float q[32], best_error = 0, best_d = 0;
  // Codes of x / d, then the scale that fits them best, as far as f16 can say it.
  auto consider = [&](float inverse) {
    codes_of(x, inverse, q);
    const Fit f = fit(x, factors, q);
    const float d = f.qq > 0 ? f32_of_f16(f16_of_f32(f.xq / f.qq)) : 0;
    if (d != 0 && std::isfinite(d) && f.error(d) < best_error) best_error = f.error(d), best_d = d;
  };
  for (int step = -7; step <= 8 && most > 0; ++step)
    // which end of -8..7 the largest value is near
    for (float sign : {-1.0f, 1.0f}) consider(sign * (7.6f + 0.14f * step) / most);
  for (int i = 0; i < 2 && best_d != 0; ++i) consider(1 / best_d);
  block.d = f16_of_f32(best_d);
  codes_of(x, best_d != 0 ? 1 / best_d : 0, q);
  for (int i = 0; i < 16; ++i) block.q[i] = uint8_t(q[i] + 8) | uint8_t(q[16 + i] + 8) << 4;
}

}  // namespace chaski
