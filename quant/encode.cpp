#include "quant/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/formats.h"

namespace chaski {

namespace {

float max_abs(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

void encode(const float* x, float& block) { block = x[0]; }

template <class Scale>
void encode(const float* x, Q8Block<Scale>& block) {
  const float d = max_abs(x, 32) / 127;
  if constexpr (sizeof(Scale) == 2)
    block.d = f16_of_f32(d);
  else
    block.d = d;
  const float stored = scale_f32(block.d), inverse = stored > 0 ? 1 / stored : 0;
  // An f16 scale rounded down could ask for 128.
  for (int i = 0; i < 32; ++i)
    block.q[i] = int8_t(std::clamp(std::nearbyint(x[i] * inverse), -127.0f, 127.0f));
}

// Nearest integer for |x| < 2^22, by the float adder: an order of magnitude faster than a library
// call in the search below.
inline float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// The codes of x for a scale, -8..7, as floats.
inline void codes_of(const float* x, float inverse, float* q) {
  for (int i = 0; i < 32; ++i) q[i] = std::min(7.0f, std::max(-8.0f, nearest(x[i] * inverse)));
}

struct Fit {
  float xq = 0, qq = 0;
  // Squared error, less the constant <x, x>, with scale d.
  float error(float d) const { return d * (d * qq - 2 * xq); }
};

inline Fit fit(const float* x, const float* q) {
  float xq[8] = {}, qq[8] = {};
  for (int i = 0; i < 32; i += 8)
    for (int k = 0; k < 8; ++k) xq[k] += x[i + k] * q[i + k], qq[k] += q[i + k] * q[i + k];
  Fit sum;
  for (int k = 0; k < 8; ++k) sum.xq += xq[k], sum.qq += qq[k];
  return sum;
}

void encode(const float* x, Q4_0::Block& block) {
  const float most = max_abs(x, 32);
  float q[32], best_error = 0, best_d = 0;
  // Codes of x / d, then the scale that fits them best, as far as f16 can say it.
  auto consider = [&](float inverse) {
    codes_of(x, inverse, q);
    const Fit f = fit(x, q);
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

// The unit of a row: its largest block must be in reach of 31 units even when the codebook's short
// side (25 of 63) has to cover it.
constexpr float kShortSide = 63 - Q4::kCentre - 3 * Q4::kCentreStep;
uint16_t q4_unit(const float* row, int64_t cols) {
  return bf16_of_f32(max_abs(row, int(cols)) / (kShortSide * 30));
}

// Nearest code of y in [0, 63]: codebook midpoints are multiples of 1/2, so cells of 1/4 know it.
struct NearestCode {
  uint8_t code[256];
  float value[256];
  NearestCode() {
    for (int i = 0; i < 256; ++i) {
      const float y = (float(i) + 0.5f) / 4;
      int best = 0;
      for (int q = 1; q < 16; ++q)
        if (std::fabs(float(Q4::kCodebook[q]) - y) < std::fabs(float(Q4::kCodebook[best]) - y))
          best = q;
      code[i] = uint8_t(best), value[i] = Q4::kCodebook[best];
    }
  }
  static int cell(float y) { return int(std::min(62.9f, std::max(0.0f, y)) * 4); }
};
const NearestCode kNearest;

// The scale byte of least error for n values that share one: sign x centre x up to six levels.
uint8_t q4_scale(const float* x, int n, float unit) {
  const float most = max_abs(x, n);
  uint8_t best = 0;  // of zeros: scale 0
  float best_error = INFINITY;
  auto consider = [&](int sign, int choice, int level) {
    const float centre = Q4::kCentre + float(choice) * Q4::kCentreStep,
                d = (sign ? -unit : unit) * float(level), inverse = 1 / d;
    float error = 0, xv = 0, vv = 0;
    for (int i = 0; i < n; ++i) {
      const float y = x[i] * inverse + centre, v = kNearest.value[NearestCode::cell(y)];
      error += (y - v) * (y - v);
      xv += x[i] * (v - centre), vv += (v - centre) * (v - centre);
    }
    error *= d * d;
    if (error < best_error) best_error = error, best = uint8_t(level | choice << 5 | sign << 7);
    return vv > 0 ? xv / vv : 0;
  };
  const float levels = unit > 0 && std::isfinite(1 / unit) ? 1 / unit : 0;
  for (int sign = 0; sign < 2 && most * levels > 0; ++sign) {
    for (int choice = 0; choice < 4; ++choice) {
      const float centre = Q4::kCentre + float(choice) * Q4::kCentreStep;
      float top = 0, bottom = 0;  // the reach to either side, as the codebook sees it
      for (int i = 0; i < n; ++i)
        top = std::max(top, sign ? -x[i] : x[i]), bottom = std::max(bottom, sign ? x[i] : -x[i]);
      const float d = std::max(top / (63 - centre), bottom / centre);
      int tried = 0;
      for (float shrink : {0.86f, 0.93f, 1.0f}) {
        const int level = std::clamp(int(nearest(shrink * d * levels)), 1, 31);
        if (level == tried) continue;
        tried = level;
        const int refit =
            std::clamp(int(nearest(std::fabs(consider(sign, choice, level)) * levels)), 1, 31);
        if (refit != level) consider(sign, choice, refit);
      }
    }
  }
  return best;
}

// A value's code under a scale byte.
int q4_code(float x, uint8_t scale, float unit) {
  const Q4::Block block{{}, {scale}};
  if ((scale & 31) == 0) return 0;
  const float d = (scale & 128 ? -unit : unit) * float(scale & 31);
  return kNearest.code[NearestCode::cell(x / d + Q4::centre(block))];
}

template <class F>
typename F::Block encode_q4(const float* x, float unit) {
  typename F::Block b{};
  constexpr int kScales = sizeof b.scale, kSpan = 32 / kScales;
  for (int s = 0; s < kScales; ++s) b.scale[s] = q4_scale(x + kSpan * s, kSpan, unit);
  for (int i = 0; i < 16; ++i)
    b.q[i] = uint8_t(q4_code(x[i], b.scale[0], unit) |
                     q4_code(x[16 + i], b.scale[kScales - 1], unit) << 4);
  return b;
}

template <class F>
typename F::Block encoded(const float* x) {
  typename F::Block block;
  if constexpr (F::kFormat == Format::f16)
    block = f16_of_f32(x[0]);
  else if constexpr (F::kFormat == Format::bf16)
    block = bf16_of_f32(x[0]);
  else
    encode(x, block);
  return block;
}

template <class F>
constexpr bool kEncodes = (F::kFloat && F::kFormat != Format::f8) || F::kFormat == Format::q8
                          || F::kFormat == Format::q8f || F::kFormat == Format::q4_0
                          || kHasHeader<F>;

}  // namespace

bool can_encode(Format f) {
  bool can = false;
  Formats::with(f, [&]<class F>(F) { can = kEncodes<F>; });
  return can;
}

void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip) {
  std::memset(strip, 0, strip_bytes(f, cols));
  Formats::with(f, [&]<class F>(F) {
    auto* tiles = const_cast<typename F::Tile*>(StripOf<F>(strip).tiles());
    for (int r = 0; r < n_rows; ++r) {
      const float* row = rows + r * row_stride;
      if constexpr (kHasHeader<F>) {
        const uint16_t unit = q4_unit(row, cols);
        std::memcpy(strip + size_t(r) * sizeof unit, &unit, sizeof unit);
        for (int64_t b = 0; b < cols / 32; ++b)
          F::put(encode_q4<F>(row + 32 * b, f32_of_bf16(unit)), r, tiles[b]);
      } else if constexpr (kEncodes<F>) {
        for (int64_t b = 0; b < cols / F::kBlock; ++b)
          F::put(encoded<F>(row + b * F::kBlock), r, tiles[b]);
      }
    }
  });
}

}  // namespace chaski
