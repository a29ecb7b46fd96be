// GGUF Q5_0 (x = d * (q - 16)) and Q5_1 (x = d * q + m): 5 bits, blocks of 32; bit i of `high` is
// the fifth bit of column i.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"
#include "quant/row_tile.h"

namespace chaski {

struct Q5_0Block {
  uint16_t d;
  uint8_t high[4];
  uint8_t q[16];
};
struct Q5_1Block {
  uint16_t d, m;
  uint8_t high[4];
  uint8_t q[16];
};

template <class Block>
constexpr int q5_at(const Block& b, int i) {
  const int low = i < 16 ? b.q[i] & 15 : b.q[i - 16] >> 4;
  return low | (b.high[i / 8] >> (i % 8) & 1) << 4;
}

struct Q5_0 : RowTiled<Q5_0, Q5_0Block> {
  static constexpr Format kFormat = Format::q5_0;
  static constexpr std::string_view kName = "q5_0";
  static constexpr int kGguf = 6;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.offset = 16, .max = 31};

  static constexpr float at(const Block& b, int i) { return f32_of_f16(b.d) * (q5_at(b, i) - 16); }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q5_at(b, i);
    p.d = f32_of_f16(b.d);
  }
};

struct Q5_1 : RowTiled<Q5_1, Q5_1Block> {
  static constexpr Format kFormat = Format::q5_1;
  static constexpr std::string_view kName = "q5_1";
  static constexpr int kGguf = 7;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 31, .mins = true};

  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * q5_at(b, i) + f32_of_f16(b.m);
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q5_at(b, i);
    p.d = f32_of_f16(b.d), p.m = f32_of_f16(b.m);
  }
};
static_assert(sizeof(Q5_0Block) == 22 && sizeof(Q5_1Block) == 24);

}  // namespace chaski
