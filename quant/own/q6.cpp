// The encoder of q6.
#include "quant/own/q6.h"

#include "quant/rounding.h"

namespace chaski {

namespace {

struct Q6Reach {
  float top = 0, bottom = 0;
  explicit Q6Reach(const float* x) {
    for (int i = 0; i < 32; ++i) top = std::max(top, x[i]), bottom = std::max(bottom, -x[i]);
  }
  // The scale under which the codes just reach the largest value on each side.
  float over(int centre) const {
    return std::max(top / float(63 - centre), bottom / float(centre));
  }
};

inline float q6_code(float x, float inverse, int centre) {
  return std::min(63.0f, std::max(0.0f, nearest(x * inverse + float(centre))));
}

float q6_lost(const float* x, const float* factors, float d, int centre) {
  float sum[8] = {};  // eight chains: no addition waits for another
  for (int i = 0; i < 32; i += 8)
    for (int k = 0; k < 8; ++k) {
      const float off = x[i + k] - d * (q6_code(x[i + k], 1 / d, centre) - float(centre));
      sum[k] += factors[i + k] * off * off;
    }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

float units_in(float unit) { return unit > 0 && std::isfinite(1 / unit) ? 1 / unit : 0; }

int q6_level(float level) {
  return std::clamp(int(nearest(std::min(std::max(level, 0.0f), 63.0f))), 1, 63);
}

// Computes all codes, several at a time; they equal those of Q6::round().
void put_q6_codes(uint16_t unit, const float* x, uint8_t scale, Q6::Block& block) {
  block = {};
  block.scale = scale;
  const float d = Q6::d(unit, block);
  if (!(d > 0)) return;
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = uint8_t(int(q6_code(x[i], 1 / d, Q6::centre(block))));
  for (int i = 0; i < 16; ++i) block.q[i] = uint8_t((codes[i] & 15) | codes[16 + i] << 4);
  for (int i = 0; i < 8; ++i)
    block.high[i] = uint8_t(codes[i] >> 4 | codes[8 + i] >> 4 << 2 | codes[16 + i] >> 4 << 4 |
                            codes[24 + i] >> 4 << 6);
}

void encode_q6_at_once(uint16_t header, const float* x, Q6::Block& block) {
  const float levels = units_in(f32_of_bf16(header));
  const Q6Reach reach(x);
  int choice = 0;
  for (int c = 1; c < 4; ++c)
    if (reach.over(Q6::kCentres[c]) < reach.over(Q6::kCentres[choice])) choice = c;
  const float exact = reach.over(Q6::kCentres[choice]) * levels;
  put_q6_codes(header, x, exact > 0 ? uint8_t(q6_level(exact) | choice << 6) : uint8_t(0), block);
}

}  // namespace

auto Q6::header_of(const float* row, int64_t cols) -> RowHeader {
  return bf16_of_f32(max_abs(row, int(cols)) / (float(kCentres[1]) * 62));
}

void Q6::encode(RowHeader header, const float* x, const float* factors, Effort effort,
                Block& block) {
  if (effort == Effort::fast) return encode_q6_at_once(header, x, block);
  const float unit = f32_of_bf16(header), levels = units_in(unit);
  const Q6Reach reach(x);
  uint8_t scale = 0;  // for zeros
  float least = INFINITY;
  for (int choice = 0; choice < 4; ++choice) {
    const float exact = reach.over(kCentres[choice]) * levels;
    for (int by = -1; by <= 1 && exact > 0; ++by) {
      const int level = q6_level(exact + float(by));
      const float lost = q6_lost(x, factors, unit * float(level), kCentres[choice]);
      if (lost < least) least = lost, scale = uint8_t(level | choice << 6);
    }
  }
  put_q6_codes(header, x, scale, block);
}

void Q6::round(RowHeader header, Block& block, int i, float x) {
  const float scale = d(header, block);
  put_code(block, i, scale > 0 ? int(q6_code(x, 1 / scale, centre(block))) : 0);
}

}  // namespace chaski
