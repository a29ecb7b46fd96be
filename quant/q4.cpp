// The encoders of q4 and q4h.
#include "quant/q4h.h"
#include "quant/rounding.h"

namespace chaski {

namespace {

constexpr float kShortSide = 63 - Q4::kCentre - 3 * Q4::kCentreStep;

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
uint8_t q4_scale(const float* x, const float* factors, int n, float unit) {
  const float most = max_abs(x, n);
  uint8_t best = 0;  // of zeros: scale 0
  float best_error = INFINITY;
  auto consider = [&](int sign, int choice, int level) {
    const float centre = Q4::kCentre + float(choice) * Q4::kCentreStep,
                d = (sign ? -unit : unit) * float(level), inverse = 1 / d;
    float error = 0, xv = 0, vv = 0;
    for (int i = 0; i < n; ++i) {
      const float y = x[i] * inverse + centre, v = kNearest.value[NearestCode::cell(y)];
      error += factors[i] * (y - v) * (y - v);
      xv += factors[i] * x[i] * (v - centre), vv += factors[i] * (v - centre) * (v - centre);
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

}  // namespace

template <int kScales>
auto ScaledNibbles<kScales>::header_of(const float* row, int64_t cols) -> RowHeader {
  return bf16_of_f32(max_abs(row, int(cols)) / (kShortSide * 30));
}

template <int kScales>
void ScaledNibbles<kScales>::encode(RowHeader header, const float* x, const float* factors,
                                    Block& block) {
  const float unit = f32_of_bf16(header);
  constexpr int kSpan = 32 / kScales;
  for (int s = 0; s < kScales; ++s)
    block.scale[s] = q4_scale(x + kSpan * s, factors + kSpan * s, kSpan, unit);
  for (int i = 0; i < 16; ++i)
    block.q[i] = uint8_t(q4_code(x[i], block.scale[0], unit) |
                         q4_code(x[16 + i], block.scale[kScales - 1], unit) << 4);
}

template struct ScaledNibbles<1>;
template struct ScaledNibbles<2>;

}  // namespace chaski
