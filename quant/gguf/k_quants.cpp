// The encoders of GGUF's blocks of 256 columns, Q2_K to Q6_K and IQ4_XS, and of blocks of 32 that
// share their searches: IQ4_NL, Q4_1 and Q5_1.
//
// Each run of 16 or 32 columns has a scale, a small integer in units of the block's f16 d. In Q2_K,
// Q4_K and Q5_K it also has a min in units of dmin. The encoder first searches for each run's scale
// of least squared error among real numbers, and chooses d. Then it alternates (Lloyd 1982): each
// run tries the integers near its scale, and d is fitted to all codes by least squares.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "quant/gguf/iq4.h"
#include "quant/gguf/q2_k.h"
#include "quant/gguf/q3_k.h"
#include "quant/gguf/q4_1.h"
#include "quant/gguf/q5.h"
#include "quant/gguf/q5_k.h"
#include "quant/gguf/q6_k.h"
#include "quant/rounding.h"

namespace chaski {

namespace {

// Sums in eight chains, so that no addition waits for another.
using Chains = std::array<float, 8>;
inline float total(const Chains& c) {
  return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
}

inline float as_f16(float x) { return f32_of_f16(f16_of_f32(x)); }
inline bool usable(float d) { return d != 0 && std::isfinite(d) && std::isfinite(1 / d); }

// How many candidates an encoder tries.
struct Tries {
  int widths;  // for a run's first scale
  int near;    // integers to either side of a scale
  int rounds;  // of fitting d
};
constexpr Tries tries_of(Effort effort) {
  return effort == Effort::search ? Tries{16, 2, 2} : Tries{1, 0, 1};
}
constexpr std::array<float, 256> kAllEqual = [] {
  std::array<float, 256> ones;
  ones.fill(1);
  return ones;
}();
const float* factors_of(const float* factors, Effort effort) {
  return effort == Effort::search ? factors : kAllEqual.data();
}

// Codes that are integers from kLow to kHigh, and equal to their values.
template <int kLow, int kHigh>
struct WholeLevels {
  static constexpr float kLeast = kLow, kMost = kHigh;
  static float value(float y) { return std::min(kMost, std::max(kLeast, nearest(y))); }
  static int code(float y) { return int(value(y)) - kLow; }
};

// The codebook of IQ4. The midpoints between its values are multiples of 1/2, so each cell of size
// 1/2 has one nearest value.
struct Iq4Levels {
  static constexpr float kLeast = -127, kMost = 113;
  struct Cells {
    uint8_t code[512];
    float value[512];
    Cells() {
      for (int i = 0; i < 512; ++i) {
        const float y = (float(i) + 0.5f) / 2 - 128;
        int best = 0;
        for (int q = 1; q < 16; ++q)
          if (std::fabs(float(kIq4Codebook[q]) - y) < std::fabs(float(kIq4Codebook[best]) - y))
            best = q;
        code[i] = uint8_t(best), value[i] = kIq4Codebook[best];
      }
    }
  };
  static int cell(float y) { return int((std::min(127.0f, std::max(-127.0f, y)) + 128) * 2); }
  static float value(float y);
  static int code(float y);
};
const Iq4Levels::Cells kIq4Cells;
inline float Iq4Levels::value(float y) { return kIq4Cells.value[cell(y)]; }
inline int Iq4Levels::code(float y) { return kIq4Cells.code[cell(y)]; }

// A run with a scale only: x = a * value.
template <class Levels, int kRun>
struct ScaledRun {
  // The levels under 1 / a, and the scale that fits them best.
  struct Sums {
    float xv, vv;
    float best() const { return vv > 0 ? xv / vv : 0; }
    // Squared error with scale a, minus that of zeros.
    float lost(float a) const { return a * (a * vv - 2 * xv); }
  };
  static Sums sums(const float* x, const float* factors, float inverse) {
    Chains xv{}, vv{};
    for (int i = 0; i < kRun; i += 8)
      for (size_t k = 0; k < 8; ++k) {
        const float v = Levels::value(x[i + int(k)] * inverse), fv = factors[i + int(k)] * v;
        xv[k] += fv * x[i + int(k)], vv[k] += fv * v;
      }
    return {total(xv), total(vv)};
  }
  // The squared error with scale a, minus that of zeros.
  static float lost(const float* x, const float* factors, float a) {
    return usable(a) ? sums(x, factors, 1 / a).lost(a) : 0;
  }
  // Searches for the scale of least error.
  static float scale(const float* x, const float* factors, Tries tries) {
    float low = 0, high = 0;
    for (int i = 0; i < kRun; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
    const float most = std::max(-low, high);
    if (!usable(most)) return 0;
    float best = 0, least = 0;
    const auto consider = [&](float inverse) {
      const Sums s = sums(x, factors, inverse);
      const float a = s.best(), lost = s.lost(a);
      if (usable(a) && lost < least) least = lost, best = a;
    };
    // Maps the value of largest magnitude to the end that reaches further, or to the other one.
    constexpr float kStep = Levels::kMost > 100 ? 0.03f : Levels::kMost > 8 ? 0.012f : 0.07f;
    const float far = high > -low ? 1 / Levels::kLeast : -1 / Levels::kLeast;
    for (int step = 0; step < tries.widths; ++step)
      for (const float side : {1.0f, -1.0f}) {
        if (side < 0 && tries.widths == 1) break;
        const float reach = 1 - kStep * float(step - tries.widths / 4);
        consider(side / (far * most * reach));
      }
    for (int again = 0; again < 2 && best != 0; ++again) consider(1 / best);
    return best;
  }
};

// Scales of all runs and d.
template <int kRuns>
struct Scaled {
  float d = 0, lost = 0;
  std::array<int, kRuns> scales{};
};

template <class Levels, int kRuns, int kLow, int kHigh>
Scaled<kRuns> scaled(const float* x, const float* factors, Tries tries) {
  constexpr int kRun = 256 / kRuns;
  using Run = ScaledRun<Levels, kRun>;
  std::array<float, kRuns> wanted;
  float largest = 0;
  for (int r = 0; r < kRuns; ++r) {
    wanted[size_t(r)] = Run::scale(x + kRun * r, factors + kRun * r, tries);
    if (std::fabs(wanted[size_t(r)]) > std::fabs(largest)) largest = wanted[size_t(r)];
  }
  Scaled<kRuns> best;
  float d = as_f16(largest / float(kLow));
  for (int round = 0; round < tries.rounds && usable(d); ++round) {
    Scaled<kRuns> now{d, 0, {}};
    float xu = 0, uu = 0;
    for (int r = 0; r < kRuns; ++r) {
      const float *values = x + kRun * r, *f = factors + kRun * r;
      const int middle =
          std::clamp(int(nearest(std::clamp(wanted[size_t(r)] / d, -300.0f, 300.0f))), kLow, kHigh);
      float least = 0;
      int chosen = 0;
      for (int s = std::max(kLow, middle - tries.near); s <= std::min(kHigh, middle + tries.near);
           ++s)
        if (const float lost = Run::lost(values, f, d * float(s)); lost < least)
          least = lost, chosen = s;
      now.scales[size_t(r)] = chosen, now.lost += least;
      if (chosen == 0) continue;
      const auto sums = Run::sums(values, f, 1 / (d * float(chosen)));
      xu += float(chosen) * sums.xv, uu += float(chosen * chosen) * sums.vv;
    }
    if (now.lost < best.lost) best = now;
    const float fitted = uu > 0 ? as_f16(xu / uu) : 0;
    if (fitted == d) break;
    d = fitted;
  }
  return best;
}

// A run with a scale and a min: x = a * q - b, 0 <= q <= kMost, b >= 0.
template <int kMost, int kRun>
struct AffineRun {
  struct Fit {
    float a = 0, b = 0, lost = 0;
  };
  using Levels = WholeLevels<0, kMost>;
  // Sums of the factors, alone and times x. They do not depend on the codes.
  struct Run {
    const float *x, *factors;
    float f, fx;
    Run(const float* x, const float* factors) : x(x), factors(factors) {
      Chains sum{}, of_x{};
      for (int i = 0; i < kRun; i += 8)
        for (size_t k = 0; k < 8; ++k)
          sum[k] += factors[i + int(k)], of_x[k] += factors[i + int(k)] * x[i + int(k)];
      f = total(sum), fx = total(of_x);
    }
  };
  struct Sums {
    float fq, fxq, fqq;
    // Squared error, minus that of zeros.
    float lost(const Run& run, float a, float b) const {
      return a * (a * fqq - 2 * fxq) + b * (b * run.f + 2 * run.fx - 2 * a * fq);
    }
    Fit best(const Run& run) const {
      const float det = run.f * fqq - fq * fq;
      Fit fit;
      if (det > 0) fit.a = (run.f * fxq - run.fx * fq) / det, fit.b = (fq * fit.a - run.fx) / run.f;
      if (!(fit.a > 0)) fit = {0, std::max(0.0f, -run.fx / run.f)};
      if (!(fit.b > 0)) fit = {fqq > 0 ? std::max(0.0f, fxq / fqq) : 0, 0};
      fit.lost = lost(run, fit.a, fit.b);
      return fit;
    }
  };
  static Sums sums(const Run& run, float a, float b) {
    const float inverse = usable(a) ? 1 / a : 0;
    Chains fq{}, fxq{}, fqq{};
    for (int i = 0; i < kRun; i += 8)
      for (size_t k = 0; k < 8; ++k) {
        const float x = run.x[i + int(k)], q = Levels::value((x + b) * inverse),
                    f = run.factors[i + int(k)] * q;
        fq[k] += f, fxq[k] += f * x, fqq[k] += f * q;
      }
    return {total(fq), total(fxq), total(fqq)};
  }
  static Fit fit(const Run& run, Tries tries) {
    float low = 0, high = run.x[0];
    for (int i = 0; i < kRun; ++i) low = std::min(low, run.x[i]), high = std::max(high, run.x[i]);
    if (!usable(high - low)) return {0, std::isfinite(low) ? -low : 0, 0};
    Fit best;
    const auto consider = [&](float a, float b) {
      const Fit fit = sums(run, a, b).best(run);
      if (fit.lost < best.lost) best = fit;
    };
    constexpr float kStep = kMost < 8 ? 0.07f : 0.03f;
    for (int step = 0; step < tries.widths; ++step) {
      const float narrower = tries.widths > 1 ? kStep * float(step - 2) : 0;
      const float span = (high - low) * (1 - narrower);
      consider(span / kMost, std::max(0.0f, -low - (high - low) * narrower / 2));
    }
    for (int again = 0; again < 2; ++again) consider(best.a, best.b);
    return best;
  }
};

template <int kRuns>
struct Affine {
  float d = 0, dmin = 0, lost = 0;
  std::array<int, kRuns> scales{}, mins{};
};

template <int kMost, int kRuns, int kHigh>
Affine<kRuns> affine(const float* x, const float* factors, Tries tries) {
  constexpr int kRun = 256 / kRuns;
  using Fitted = AffineRun<kMost, kRun>;
  std::vector<typename Fitted::Run> runs;
  runs.reserve(kRuns);
  std::array<typename Fitted::Fit, kRuns> wanted;
  float a = 0, b = 0;
  for (int r = 0; r < kRuns; ++r) {
    runs.emplace_back(x + kRun * r, factors + kRun * r);
    wanted[size_t(r)] = Fitted::fit(runs.back(), tries);
    a = std::max(a, wanted[size_t(r)].a), b = std::max(b, wanted[size_t(r)].b);
  }
  Affine<kRuns> best;
  const auto level = [](float wanted, float unit) {
    return unit > 0 ? std::clamp(int(nearest(std::min(wanted / unit, 300.0f))), 0, kHigh) : 0;
  };
  float d = as_f16(a / kHigh), dmin = as_f16(b / kHigh);
  for (int round = 0; round < tries.rounds; ++round) {
    if (!std::isfinite(d) || !std::isfinite(dmin)) break;
    Affine<kRuns> now{d, dmin, 0, {}, {}};
    // of u = scale * code and v = min
    double uu = 0, uv = 0, vv = 0, xu = 0, xv = 0;
    for (int r = 0; r < kRuns; ++r) {
      const typename Fitted::Run& run = runs[size_t(r)];
      const int scale = level(wanted[size_t(r)].a, d), min = level(wanted[size_t(r)].b, dmin);
      float least = INFINITY;
      typename Fitted::Sums chosen{};
      for (int s = std::max(0, scale - tries.near); s <= std::min(kHigh, scale + tries.near); ++s) {
        const float a = d * float(s);
        for (int m = std::max(0, min - tries.near); m <= std::min(kHigh, min + tries.near); ++m) {
          const auto sums = Fitted::sums(run, a, dmin * float(m));
          const float lost = sums.lost(run, a, dmin * float(m));
          if (!(lost < least)) continue;
          least = lost, chosen = sums;
          now.scales[size_t(r)] = s, now.mins[size_t(r)] = m;
        }
      }
      now.lost += least;
      const double s = now.scales[size_t(r)], m = now.mins[size_t(r)];
      uu += s * s * double(chosen.fqq), uv += s * m * double(chosen.fq),
          vv += m * m * double(run.f), xu += s * double(chosen.fxq), xv += m * double(run.fx);
    }
    if (now.lost < best.lost) best = now;
    const double det = uu * vv - uv * uv;
    double to = 0, to_min = 0;
    if (det > 0) to = (xu * vv - uv * xv) / det, to_min = (uv * xu - uu * xv) / det;
    if (!(to_min > 0)) to_min = 0, to = uu > 0 ? xu / uu : 0;
    if (!(to > 0)) to = 0, to_min = vv > 0 ? std::max(0.0, -xv / vv) : 0;
    const float d_before = d, dmin_before = dmin;
    d = as_f16(float(to)), dmin = as_f16(float(to_min));
    if (d == d_before && dmin == dmin_before) break;
  }
  return best;
}

// Encodes Q4_K and Q5_K. put_code() writes a code into a zeroed block.
template <int kMost, class Block, class PutCode>
void encode_pairs(const float* x, const float* factors, Effort effort, Block& block,
                  PutCode put_code) {
  const Affine<8> found = affine<kMost, 8, 63>(x, factors_of(factors, effort), tries_of(effort));
  block = {};
  block.d = f16_of_f32(found.d), block.dmin = f16_of_f32(found.dmin);
  for (int s = 0; s < 8; ++s) {
    block.pairs.set(s, found.scales[size_t(s)], found.mins[size_t(s)]);
    const float a = found.d * float(found.scales[size_t(s)]),
                b = found.dmin * float(found.mins[size_t(s)]);
    for (int i = 32 * s; i < 32 * s + 32; ++i)
      put_code(i, WholeLevels<0, kMost>::code(usable(a) ? (x[i] + b) * (1 / a) : 0));
  }
}

// Encodes Q4_1 and Q5_1, whose blocks are one run. AffineRun's minimum is at most 0, so values that
// are all positive are encoded by their distance to the smallest.
template <class F>
void encode_with_min(const float* x, const float* factors, Effort effort,
                     typename F::Block& block) {
  using Fitted = AffineRun<F::kDot.max, 32>;
  const float least = std::max(0.0f, *std::min_element(x, x + 32));
  float above[32];
  for (int i = 0; i < 32; ++i) above[i] = x[i] - least;
  const typename Fitted::Fit fit =
      Fitted::fit({above, factors_of(factors, effort)}, tries_of(effort));
  block = {};
  const float d = as_f16(fit.a), m = as_f16(least - fit.b);
  if (!std::isfinite(d) || !std::isfinite(m)) return;
  block.d = f16_of_f32(d), block.m = f16_of_f32(m);
  for (int i = 0; i < 32; ++i)
    F::put_code(block, i, Fitted::Levels::code(usable(d) ? (x[i] - m) * (1 / d) : 0));
}

}  // namespace

void IQ4_NL::encode(const float* x, const float* factors, Effort effort, Block& block) {
  using Run = ScaledRun<Iq4Levels, 32>;
  block = {};
  block.d = f16_of_f32(Run::scale(x, factors_of(factors, effort), tries_of(effort)));
  const float d = f32_of_f16(block.d);
  if (!usable(d)) return void(block.d = 0);
  for (int i = 0; i < 32; ++i) put_nibble(block.q, i, Iq4Levels::code(x[i] * (1 / d)));
}

void IQ4_XS::encode(const float* x, const float* factors, Effort effort, Block& block) {
  const Scaled<8> found =
      scaled<Iq4Levels, 8, -32, 31>(x, factors_of(factors, effort), tries_of(effort));
  block = {};
  block.d = f16_of_f32(found.d);
  for (int s = 0; s < 8; ++s) {
    const int scale = found.scales[size_t(s)] + 32;
    block.scale_low[s / 2] |= uint8_t((scale & 15) << 4 * (s % 2));
    block.scale_high = uint16_t(block.scale_high | scale >> 4 << 2 * s);
    const float a = found.d * float(scale - 32);
    for (int i = 0; i < 32; ++i)
      put_nibble(block.q + 16 * s, i, Iq4Levels::code(usable(a) ? x[32 * s + i] * (1 / a) : 0));
  }
}

void Q3_K::encode(const float* x, const float* factors, Effort effort, Block& block) {
  using Levels = WholeLevels<-4, 3>;
  const Scaled<16> found =
      scaled<Levels, 16, -32, 31>(x, factors_of(factors, effort), tries_of(effort));
  block = {};
  block.d = f16_of_f32(found.d);
  for (int s = 0; s < 16; ++s) {
    const int scale = found.scales[size_t(s)] + 32;
    block.scale[s % 8] |= uint8_t((scale & 15) << 4 * (s / 8));
    block.scale[8 + s % 4] |= uint8_t(scale >> 4 << 2 * (s / 4));
    const float a = found.d * float(scale - 32);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const int q = Levels::code(usable(a) ? x[i] * (1 / a) : 0);
      block.q[32 * (i / 128) + i % 32] |= uint8_t((q & 3) << 2 * (i % 128 / 32));
      block.high[i % 32] |= uint8_t(q >> 2 << i / 32);
    }
  }
}

void Q6_K::encode(const float* x, const float* factors, Effort effort, Block& block) {
  using Levels = WholeLevels<-32, 31>;
  const Scaled<16> found =
      scaled<Levels, 16, -128, 127>(x, factors_of(factors, effort), tries_of(effort));
  block = {};
  block.d = f16_of_f32(found.d);
  for (int s = 0; s < 16; ++s) {
    block.scale[s] = int8_t(found.scales[size_t(s)]);
    const float a = found.d * float(block.scale[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const int q = Levels::code(usable(a) ? x[i] * (1 / a) : 0), half = i / 128, j = i % 128 / 32,
                l = i % 32;
      block.low[64 * half + 32 * (j % 2) + l] |= uint8_t((q & 15) << 4 * (j / 2));
      block.high[32 * half + l] |= uint8_t(q >> 4 << 2 * j);
    }
  }
}

void Q2_K::encode(const float* x, const float* factors, Effort effort, Block& block) {
  const Affine<16> found = affine<3, 16, 15>(x, factors_of(factors, effort), tries_of(effort));
  block = {};
  block.d = f16_of_f32(found.d), block.dmin = f16_of_f32(found.dmin);
  for (int s = 0; s < 16; ++s) {
    block.scale[s] = uint8_t(found.scales[size_t(s)] | found.mins[size_t(s)] << 4);
    const float a = found.d * float(found.scales[size_t(s)]),
                b = found.dmin * float(found.mins[size_t(s)]);
    for (int i = 16 * s; i < 16 * s + 16; ++i)
      block.q[32 * (i / 128) + i % 32] |= uint8_t(
          WholeLevels<0, 3>::code(usable(a) ? (x[i] + b) * (1 / a) : 0) << 2 * (i % 128 / 32));
  }
}

void Q4_K::encode(const float* x, const float* factors, Effort effort, Block& block) {
  encode_pairs<15>(x, factors, effort, block, [&](int i, int q) {
    block.q[32 * (i / 64) + i % 32] |= uint8_t(q << 4 * (i / 32 % 2));
  });
}

void Q5_K::encode(const float* x, const float* factors, Effort effort, Block& block) {
  encode_pairs<31>(x, factors, effort, block, [&](int i, int q) {
    block.q[32 * (i / 64) + i % 32] |= uint8_t((q & 15) << 4 * (i / 32 % 2));
    block.high[i % 32] |= uint8_t(q >> 4 << i / 32);
  });
}

void Q4_1::encode(const float* x, const float* factors, Effort effort, Block& block) {
  encode_with_min<Q4_1>(x, factors, effort, block);
}

void Q5_1::encode(const float* x, const float* factors, Effort effort, Block& block) {
  encode_with_min<Q5_1>(x, factors, effort, block);
}

}  // namespace chaski
