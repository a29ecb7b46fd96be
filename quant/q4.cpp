// The encoders of q4 and q4h.
#include "quant/fast.h"
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

// How far the codebook reaches for a block's largest values: its codes are nearer to the others
// when it falls a little short of them.
constexpr float kFastReach = 0.96f;

// What a block's values are as the codebook sees them under a scale: cells of kNearest.
template <int kCount>
inline void cells_of(const float* x, float inverse, float centre, int* cells) {
  for (int i = 0; i < kCount; ++i) cells[i] = NearestCode::cell(x[i] * inverse + centre);
}

// The scale byte without a search, and the codes under it. Sums are of four chains, so that none
// waits for another.
template <int kCount>
uint8_t q4_at_once(const float* x, float unit, uint8_t* codes) {
  float highest[4] = {}, lowest[4] = {};
  for (int i = 0; i < kCount; i += 4)
    for (int k = 0; k < 4; ++k) {
      highest[k] = std::max(highest[k], x[i + k]);
      lowest[k] = std::min(lowest[k], x[i + k]);
    }
  const float top = *std::max_element(highest, highest + 4),
              bottom = -*std::min_element(lowest, lowest + 4);
  const float levels = unit > 0 && std::isfinite(1 / unit) ? 1 / unit : 0;
  std::fill(codes, codes + kCount, uint8_t(0));
  if (!(std::max(top, bottom) * levels > 0)) return 0;
  // The longer side wants the centre at the other end, as far as the shorter one has room there.
  const bool mirrored = top < bottom;
  const float longer = mirrored ? bottom : top, shorter = mirrored ? top : bottom;
  float least = INFINITY;
  int choice = 0;
  bool flipped = false;
  for (int c = 0; c < 4; ++c) {
    constexpr float kBelow[4] = {1 / 26.0f, 1 / 30.0f, 1 / 34.0f, 1 / 38.0f},
                    kAbove[4] = {1 / 37.0f, 1 / 33.0f, 1 / 29.0f, 1 / 25.0f};
    const float straight = std::max(longer * kAbove[c], shorter * kBelow[c]),
                turned = std::max(shorter * kAbove[c], longer * kBelow[c]);
    if (straight < least) least = straight, choice = c, flipped = false;
    if (turned < least) least = turned, choice = c, flipped = true;
  }
  const bool sign = mirrored != flipped;
  const float centre = Q4::kCentre + float(choice) * Q4::kCentreStep,
              signed_levels = sign ? -levels : levels;
  const int level = std::clamp(int(nearest(std::min(kFastReach * least * levels, 31.0f))), 1, 31);
  int cells[kCount];
  cells_of<kCount>(x, signed_levels / float(level), centre, cells);
  float xv[4] = {}, vv[4] = {}, v[kCount];
  for (int i = 0; i < kCount; ++i) v[i] = kNearest.value[cells[i]] - centre;
  for (int i = 0; i < kCount; i += 4)
    for (int k = 0; k < 4; ++k) xv[k] += x[i + k] * v[i + k], vv[k] += v[i + k] * v[i + k];
  const float xv_all = (xv[0] + xv[1]) + (xv[2] + xv[3]),
              vv_all = (vv[0] + vv[1]) + (vv[2] + vv[3]),
              best = vv_all > 0 ? xv_all / vv_all * signed_levels : 0;
  const int fit = std::clamp(int(nearest(std::min(best, 31.0f))), 1, 31);
  if (fit != level) cells_of<kCount>(x, signed_levels / float(fit), centre, cells);
  for (int i = 0; i < kCount; ++i) codes[i] = kNearest.code[cells[i]];
  return uint8_t(fit | choice << 5 | sign << 7);
}

template <int kScales>
void encode_at_once(uint16_t unit, const float* x, typename ScaledNibbles<kScales>::Block& block) {
  constexpr int kSpan = 32 / kScales;
  uint8_t codes[32];
  for (int s = 0; s < kScales; ++s)
    block.scale[s] = q4_at_once<kSpan>(x + kSpan * s, f32_of_bf16(unit), codes + kSpan * s);
  for (int i = 0; i < 16; ++i) block.q[i] = uint8_t(codes[i] | codes[16 + i] << 4);
}

}  // namespace

void encode_fast(uint16_t unit, const float* x, ScaledNibbles<1>::Block& block) {
  encode_at_once<1>(unit, x, block);
}
void encode_fast(uint16_t unit, const float* x, ScaledNibbles<2>::Block& block) {
  encode_at_once<2>(unit, x, block);
}

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

template <int kScales>
void ScaledNibbles<kScales>::round(RowHeader header, Block& block, int i, float x) {
  put_nibble(block.q, i, q4_code(x, block.scale[i * kScales / 32], f32_of_bf16(header)));
}

template struct ScaledNibbles<1>;
template struct ScaledNibbles<2>;

}  // namespace chaski
