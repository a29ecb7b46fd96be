// GGUF Q2_K: 256 columns in 16 sub-blocks of 16, x = d * scale * q - dmin * min with 4-bit scale
// and min, 0 <= q <= 3.
#pragma once
#include "quant/format.h"
#include "quant/half.h"
#include "quant/row_tile.h"

namespace chaski {

struct Q2_KBlock {
  uint8_t scale[16];  // low nibble scale, high nibble min
  uint8_t q[64];
  uint16_t d, dmin;
};

struct Q2_K : RowTiled<Q2_K, Q2_KBlock> {
  static constexpr Format kFormat = Format::q2_k;
  static constexpr std::string_view kName = "q2_k";
  static constexpr int kGguf = 10;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 3, .mins = true, .halves = true};

  // Each half of 128 columns keeps four groups of 32 in the four bit pairs of 32 bytes.
  static constexpr int q(const Block& b, int i) {
    return b.q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
  }
  static constexpr float at(const Block& b, int i) {
    const uint8_t s = b.scale[i / 16];
    return f32_of_f16(b.d) * (s & 15) * q(b, i) - f32_of_f16(b.dmin) * (s >> 4);
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q(b, 32 * sub + i);
    p.d = f32_of_f16(b.d), p.m = -f32_of_f16(b.dmin);
    for (int h = 0; h < 2; ++h)
      p.s[h] = b.scale[2 * sub + h] & 15, p.mins[h] = b.scale[2 * sub + h] >> 4;
  }
};
static_assert(sizeof(Q2_KBlock) == 84);

}  // namespace chaski
