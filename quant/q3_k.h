// GGUF Q3_K: 256 columns in 16 sub-blocks of 16, x = d * (scale - 32) * (q - 4) with 6-bit scales,
// 0 <= q <= 7.
#pragma once
#include "quant/format.h"
#include "quant/half.h"
#include "quant/row_tile.h"

namespace chaski {

struct Q3_KBlock {
  uint8_t high[32];  // third bits: bit i / 32 of byte i % 32
  uint8_t q[64];
  uint8_t scale[12];
  uint16_t d;
};

struct Q3_K : RowTiled<Q3_K, Q3_KBlock> {
  static constexpr Format kFormat = Format::q3_k;
  static constexpr std::string_view kName = "q3_k";
  static constexpr int kGguf = 11;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.offset = 4, .max = 7, .halves = true};

  static constexpr int q(const Block& b, int i) {
    const int low = b.q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
    return low | (b.high[i % 32] >> (i / 32) & 1) << 2;
  }
  // Low nibbles in the first 8 bytes (0..7 low, 8..15 high), the upper two bits in the last 4.
  static constexpr int scale(const Block& b, int s) {
    const int low = s < 8 ? b.scale[s] & 15 : b.scale[s - 8] >> 4;
    return (low | (b.scale[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32;
  }
  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * scale(b, i / 16) * (q(b, i) - 4);
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q(b, 32 * sub + i);
    p.d = f32_of_f16(b.d);
    for (int h = 0; h < 2; ++h) p.s[h] = scale(b, 2 * sub + h);
  }
};
static_assert(sizeof(Q3_KBlock) == 110);

}  // namespace chaski
