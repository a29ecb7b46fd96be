// GGUF IQ1_S: 256 columns in 8 sub-blocks of 32, x = d * (2 scale + 1) * (digit - 1 +- 1/8), 1.56
// bits per weight. An index into a grid (grids.h) gives eight digits below 3. A sub-block has one
// scale and one sign of the 1/8.
//
// Tile: 2.19 bits per weight, more than in the file, so that kernels look up no index. It has the
// digits (two_bits.h), then three bits of scale and one of sign (low nibble: the even sub-block),
// and d.
#pragma once
#include "quant/gguf/grids.h"
#include "quant/gguf/two_bits.h"
#include "quant/half.h"

namespace chaski {

struct IQ1_S {
  static constexpr Format kFormat = Format::iq1_s;
  static constexpr std::string_view kName = "iq1_s";
  static constexpr int kGguf = 19;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 3, .mins = true};
  struct Block {
    uint16_t d;
    uint8_t q[32];     // low 8 bits of the indices
    uint16_t high[8];  // per sub-block four times three bits of index, the scale, the sign
  };
  struct Tile : TileTwoBits {
    uint8_t scale[4][16];
    uint16_t d[16];
  };

  static int digit(const Block& b, int i) {
    const int g = i / 8;
    return iq1_grid().digit(b.q[g] | (b.high[g / 4] >> 3 * (g % 4) & 7) << 8, i % 8);
  }
  static float d(const Block& b, int sub) {
    return f32_of_f16(b.d) * float(2 * (b.high[sub] >> 12 & 7) + 1);
  }
  static float least(const Block& b, int sub) { return b.high[sub] >> 15 ? -1.125f : -0.875f; }
  static float at(const Block& b, int i) {
    return d(b, i / 32) * (float(digit(b, i)) + least(b, i / 32));
  }
  // The same for a tile, which needs no grid.
  static constexpr float tile_at(const Tile& t, int r, int i) {
    const int digit = t.q[i / 32][i / 16 % 2][4 * r + i % 4] >> 2 * (i / 4 % 4) & 3,
              scale = t.scale[i / 64][r] >> 4 * (i / 32 % 2) & 15;
    return f32_of_f16(t.d[r]) * float(2 * (scale & 7) + 1) *
           (float(digit) + (scale & 8 ? -1.125f : -0.875f));
  }
  static void put(const Block& b, int r, Tile& t) {
    uint8_t low[64] = {};
    for (int i = 0; i < 256; ++i)
      low[32 * (i / 128) + i % 32] |= uint8_t(digit(b, i) << 2 * (i % 128 / 32));
    t.put_codes(low, r);
    for (int i = 0; i < 4; ++i)
      t.scale[i][r] = uint8_t(b.high[2 * i] >> 12 | b.high[2 * i + 1] >> 12 << 4);
    t.d[r] = b.d;
  }
  static Block get(const Tile& t, int r) {
    Block b{};
    uint8_t low[64];
    t.get_codes(r, low);
    for (int s = 0; s < 8; ++s) b.high[s] = uint16_t((t.scale[s / 2][r] >> 4 * (s % 2) & 15) << 12);
    for (int g = 0; g < 32; ++g) {
      int tuple = 0;
      for (int k = 0; k < 8; ++k) tuple |= two_bits_of(low, 8 * g + k) << 2 * k;
      const int index = iq1_grid().index_of(tuple);
      b.q[g] = uint8_t(index), b.high[g / 4] |= uint16_t(index >> 8 << 3 * (g % 4));
    }
    b.d = t.d[r];
    return b;
  }
  static void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(digit(b, 32 * sub + i));
    p.d = d(b, sub), p.m = p.d * least(b, sub);
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    t.unpack_codes(sub, p);
    const auto both = V::shift_right(V::load_u8(t.scale[sub / 2]), 4 * (sub % 2));
    const auto odd = V::bit_or(V::shift_left(V::bit_and(both, V::set1_i32(7)), 1), V::set1_i32(1));
    const auto sign = V::to_float(V::bit_and(both, V::set1_i32(8)));  // 0 or 8
    p.d = V::mul(V::load_f16(t.d), V::to_float(odd));
    p.m = V::mul(p.d, V::fma(sign, V::set1(-0x1p-5f), V::set1(-0.875f)));
  }
};
static_assert(sizeof(IQ1_S::Block) == 50 && sizeof(IQ1_S::Tile) == 16 * 70);

}  // namespace chaski
