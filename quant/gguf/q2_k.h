// GGUF Q2_K: 256 columns in 16 sub-blocks of 16, x = d * scale * q - dmin * min with 4-bit scale
// and min, 0 <= q <= 3.
//
// Tile: codes (two_bits.h), then scale[i][r], the scale and min of row r, columns 16i .. 16i + 15.
#pragma once
#include "quant/gguf/two_bits.h"
#include "quant/half.h"

namespace chaski {

struct Q2_K {
  static constexpr Format kFormat = Format::q2_k;
  static constexpr std::string_view kName = "q2_k";
  static constexpr int kGguf = 10;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr uint32_t kTileLayout = 2;
  static constexpr DotKind kDot{.max = 3, .mins = true, .halves = true};
  struct Block {
    uint8_t scale[16];  // low nibble scale, high nibble min
    uint8_t q[64];
    uint16_t d, dmin;
  };
  struct Tile : TileTwoBits {
    uint8_t scale[16][16];
    uint16_t d[16], dmin[16];
  };

  static constexpr float at(const Block& b, int i) {
    const uint8_t s = b.scale[i / 16];
    return f32_of_f16(b.d) * (s & 15) * two_bits_of(b.q, i) - f32_of_f16(b.dmin) * (s >> 4);
  }
  // Searches for the scales of least squared error, weighted by the factors.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b.q, r);
    for (int i = 0; i < 16; ++i) t.scale[i][r] = b.scale[i];
    t.d[r] = b.d, t.dmin[r] = b.dmin;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b.q);
    for (int i = 0; i < 16; ++i) b.scale[i] = t.scale[i][r];
    b.d = t.d[r], b.dmin = t.dmin[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(two_bits_of(b.q, 32 * sub + i));
    p.d = f32_of_f16(b.d), p.m = -f32_of_f16(b.dmin);
    for (int h = 0; h < 2; ++h)
      p.s[h] = b.scale[2 * sub + h] & 15, p.mins[h] = b.scale[2 * sub + h] >> 4;
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    t.unpack_codes(sub, p);
    for (int h = 0; h < 2; ++h) {
      const auto both = V::load_u8(t.scale[2 * sub + h]);
      p.s[h] = V::bit_and(both, V::set1_i32(15)), p.mins[h] = V::shift_right(both, 4);
    }
    p.d = V::load_f16(t.d), p.m = V::sub(V::zero(), V::load_f16(t.dmin));
  }
};
static_assert(sizeof(Q2_K::Block) == 84 && sizeof(Q2_K::Tile) == 16 * 84);

}  // namespace chaski
