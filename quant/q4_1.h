// GGUF Q4_1: 4 bits with a minimum, blocks of 32, x = d * q + m.
#pragma once
#include "quant/format.h"
#include "quant/half.h"
#include "quant/row_tile.h"

namespace chaski {

struct Q4_1Block {
  uint16_t d, m;
  uint8_t q[16];
};

struct Q4_1 : RowTiled<Q4_1, Q4_1Block> {
  static constexpr Format kFormat = Format::q4_1;
  static constexpr std::string_view kName = "q4_1";
  static constexpr int kGguf = 3;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 15, .mins = true};

  static constexpr int q(const Block& b, int i) { return i < 16 ? b.q[i] & 15 : b.q[i - 16] >> 4; }
  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * q(b, i) + f32_of_f16(b.m);
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q(b, i);
    p.d = f32_of_f16(b.d), p.m = f32_of_f16(b.m);
  }
};
static_assert(sizeof(Q4_1Block) == 20);

}  // namespace chaski
