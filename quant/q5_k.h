// GGUF Q5_K: as Q4_K with a fifth bit, 0 <= q <= 31; bit s of high[l] belongs to column 32 s + l.
#pragma once
#include "quant/format.h"
#include "quant/q4_k.h"
#include "quant/row_tile.h"

namespace chaski {

struct Q5_KBlock {
  uint16_t d, dmin;
  SixBitPairs pairs;
  uint8_t high[32];
  uint8_t q[128];
};

struct Q5_K : RowTiled<Q5_K, Q5_KBlock> {
  static constexpr Format kFormat = Format::q5_k;
  static constexpr std::string_view kName = "q5_k";
  static constexpr int kGguf = 13;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 31, .mins = true};

  static int q(const Block& b, int i) {
    return (b.q[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15) | (b.high[i % 32] >> (i / 32) & 1) << 4;
  }
  static float at(const Block& b, int i) {
    return f32_of_f16(b.d) * b.pairs.scale(i / 32) * q(b, i) - f32_of_f16(b.dmin) * b.pairs.min(i / 32);
  }
  static void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q(b, 32 * sub + i);
    p.d = f32_of_f16(b.d) * b.pairs.scale(sub);
    p.m = -(f32_of_f16(b.dmin) * b.pairs.min(sub));
  }
};
static_assert(sizeof(Q5_KBlock) == 176);

}  // namespace chaski
