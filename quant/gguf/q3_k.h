// GGUF Q3_K: 256 columns in 16 sub-blocks of 16, x = d * (scale - 32) * (q - 4) with 6-bit scales,
// 0 <= q <= 7.
//
// Tile: two bits of the codes (two_bits.h); bit g of byte 4r + k of high[s] is the third bit of row
// r, column 32s + 4g + k; scale[i][r] is byte i of row r's scales.
#pragma once
#include "quant/gguf/two_bits.h"
#include "quant/half.h"

namespace chaski {

struct Q3_K {
  static constexpr Format kFormat = Format::q3_k;
  static constexpr std::string_view kName = "q3_k";
  static constexpr int kGguf = 11;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr uint32_t kTileLayout = 2;
  static constexpr DotKind kDot{.offset = 4, .max = 7, .halves = true};
  struct Block {
    uint8_t high[32];  // third bits: bit i / 32 of byte i % 32
    uint8_t q[64];
    uint8_t scale[12];
    uint16_t d;
  };
  struct Tile : TileTwoBits {
    uint8_t high[8][64];
    uint8_t scale[12][16];
    uint16_t d[16];
  };

  static constexpr int third(const Block& b, int i) { return b.high[i % 32] >> (i / 32) & 1; }
  static constexpr int q(const Block& b, int i) { return two_bits_of(b.q, i) | third(b, i) << 2; }
  // Low nibbles in the first 8 bytes (0..7 low, 8..15 high), the upper two bits in the last 4.
  static constexpr int scale(const Block& b, int s) {
    return ((b.scale[s % 8] >> 4 * (s / 8) & 15) | (b.scale[8 + s % 4] >> 2 * (s / 4) & 3) << 4) -
           32;
  }
  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * scale(b, i / 16) * (q(b, i) - 4);
  }
  // Searches for the scales of least squared error, weighted by the factors.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b.q, r);
    for (int s = 0; s < 8; ++s)
      for (int k = 0; k < 4; ++k) {
        int bits = 0;
        for (int g = 0; g < 8; ++g) bits |= third(b, 32 * s + 4 * g + k) << g;
        t.high[s][4 * r + k] = uint8_t(bits);
      }
    for (int i = 0; i < 12; ++i) t.scale[i][r] = b.scale[i];
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b{};
    t.get_codes(r, b.q);
    for (int i = 0; i < 256; ++i)
      b.high[i % 32] |= uint8_t((t.high[i / 32][4 * r + i % 4] >> (i % 32 / 4) & 1) << i / 32);
    for (int i = 0; i < 12; ++i) b.scale[i] = t.scale[i][r];
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(q(b, 32 * sub + i));
    p.d = f32_of_f16(b.d);
    for (int h = 0; h < 2; ++h) p.s[h] = scale(b, 2 * sub + h);
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    const auto thirds = V::load_bytes(t.high[sub]);
    t.unpack_codes(sub, p, [&](int g, auto pairs) {
      return V::or_bytes(pairs, V::move_bits(thirds, g, 2, 1));
    });
    for (int h = 0; h < 2; ++h) {
      const int s = 2 * sub + h;
      const auto low =
          V::bit_and(V::shift_right(V::load_u8(t.scale[s % 8]), 4 * (s / 8)), V::set1_i32(15));
      const auto high =
          V::bit_and(V::shift_right(V::load_u8(t.scale[8 + s % 4]), 2 * (s / 4)), V::set1_i32(3));
      p.s[h] = V::add_i32(V::bit_or(low, V::shift_left(high, 4)), V::set1_i32(-32));
    }
    p.d = V::load_f16(t.d);
  }
};
static_assert(sizeof(Q3_K::Block) == 110 && sizeof(Q3_K::Tile) == 16 * 110);

}  // namespace chaski
