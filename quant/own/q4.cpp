// The encoders of q4 and q4h.
#include "quant/own/q4h.h"
#include "quant/rounding.h"

namespace chaski {

namespace {

constexpr float kShortSide = 63 - Q4::kCentre - 3 * Q4::kCentreStep;

// The nearest code of y in [0, 63]. Midpoints of the codebook are multiples of 1/2, so each cell of
// size 1/4 has one nearest code.
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

// A float for each of the four centres of which a scale selects one: value = (code - centre) *
// scale.
using ByCentre = float __attribute__((vector_size(16)));
using CentreInts = int32_t __attribute__((vector_size(16)));
constexpr ByCentre kCentres = {Q4::kCentre, Q4::kCentre + Q4::kCentreStep,
                               Q4::kCentre + 2 * Q4::kCentreStep,
                               Q4::kCentre + 3 * Q4::kCentreStep};

// The squared error of n values under a scale for each centre, and the scale that fits their codes
// best. Sums run over the values in order, so four centres at once give the same as each alone.
struct Q4Trial {
  ByCentre loss, fit;
};
Q4Trial q4_trial(const float* x, const float* factors, int n, ByCentre d) {
  const ByCentre inverse = 1 / d, none{}, last = none + 62.9f;  // as in NearestCode::cell()
  ByCentre error{}, xv{}, vv{};
  for (int i = 0; i < n; ++i) {
    const ByCentre y = x[i] * inverse + kCentres, above = none < y ? y : none;
    const CentreInts cell = __builtin_convertvector((above < last ? above : last) * 4, CentreInts);
    const float* const value = kNearest.value;
    const ByCentre v = {value[cell[0]], value[cell[1]], value[cell[2]], value[cell[3]]};
    error += factors[i] * (y - v) * (y - v);
    xv += factors[i] * x[i] * (v - kCentres), vv += factors[i] * (v - kCentres) * (v - kCentres);
  }
  return {error * (d * d), vv > 0 ? xv / vv : none};
}

// Searches for the scale byte of least error for n values that share it: sign x centre x six
// levels.
uint8_t q4_scale(const float* x, const float* factors, int n, float unit) {
  const float levels = unit > 0 && std::isfinite(1 / unit) ? 1 / unit : 0;
  float highest = 0, lowest = 0;
  for (int i = 0; i < n; ++i) highest = std::max(highest, x[i]), lowest = std::min(lowest, x[i]);
  if (!(std::max(highest, -lowest) * levels > 0)) return 0;  // zeros have scale 0
  const auto levels_of = [&](ByCentre d) {
    ByCentre level;
    for (int c = 0; c < 4; ++c)
      level[c] = float(std::clamp(int(nearest(std::fabs(d[c]) * levels)), 1, 31));
    return level;
  };
  const auto same = [](ByCentre a, ByCentre b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  constexpr ByCentre kNone = {INFINITY, INFINITY, INFINITY, INFINITY};
  uint8_t best = 0;
  float best_error = INFINITY;
  for (int sign = 0; sign < 2; ++sign) {
    const float step = sign ? -unit : unit, top = sign ? -lowest : highest,
                bottom = sign ? highest : -lowest;
    const ByCentre above = top / (63 - kCentres), below = bottom / kCentres,
                   reach = above < below ? below : above;
    ByCentre level[6], loss[6];
    for (int t = 0; t < 6; t += 2) {
      constexpr float kShrink[] = {0.86f, 0.93f, 1};
      level[t] = levels_of(kShrink[t / 2] * reach);
      loss[t] = loss[t + 1] = kNone;
      if (t > 0 && same(level[t], level[t - 2])) continue;
      const Q4Trial first = q4_trial(x, factors, n, step * level[t]);
      loss[t] = first.loss;
      level[t + 1] = levels_of(first.fit);
      if (!same(level[t + 1], level[t]))
        loss[t + 1] = q4_trial(x, factors, n, step * level[t + 1]).loss;
    }
    for (int choice = 0; choice < 4; ++choice)
      for (int t = 0; t < 6; ++t)
        if (loss[t][choice] < best_error) {
          best_error = loss[t][choice];
          best = uint8_t(int(level[t][choice]) | choice << 5 | sign << 7);
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

// How far the codebook reaches compared with a block's largest values. The other values get nearer
// codes if it falls a little short of the largest.
constexpr float kFastReach = 0.96f;

// A block's values as cells of kNearest, under a scale.
template <int kCount>
inline void cells_of(const float* x, float inverse, float centre, int* cells) {
  for (int i = 0; i < kCount; ++i) cells[i] = NearestCode::cell(x[i] * inverse + centre);
}

// Computes the scale byte without a search, and the codes under it. Sums have four chains, so that
// no addition waits for another.
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
  // Chooses the centre, which is the code of 0, and the direction of the codes. The centre lies as
  // far from the end with the larger values as the other end allows, so the scale is the smallest
  // one that reaches both ends.
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

template <int kScales>
auto ScaledNibbles<kScales>::header_of(const float* row, int64_t cols) -> RowHeader {
  return bf16_of_f32(max_abs(row, int(cols)) / (kShortSide * 30));
}

template <int kScales>
void ScaledNibbles<kScales>::encode(RowHeader header, const float* x, const float* factors,
                                    Effort effort, Block& block) {
  if (effort == Effort::fast) return encode_at_once<kScales>(header, x, block);
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
