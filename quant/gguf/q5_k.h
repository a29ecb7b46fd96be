// GGUF Q5_K: as Q4_K with a fifth bit, 0 <= q <= 31; bit s of high[l] belongs to column 32 s + l.
//
// Tile: as Q4_K's, and per sub-block 64 bytes of fifth bits: bit g of byte 4r + k belongs to row r,
// column 4g + k.
#pragma once
#include "quant/gguf/q4_k.h"

namespace chaski {

struct Q5_K {
  static constexpr Format kFormat = Format::q5_k;
  static constexpr std::string_view kName = "q5_k";
  static constexpr int kGguf = 13;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 31, .mins = true};
  struct Block {
    uint16_t d, dmin;
    SixBitPairs pairs;
    uint8_t high[32];
    uint8_t q[128];
  };
  struct Tile {
    uint8_t q[8][256], high[8][64];
    SixBitPlanes planes;
    uint16_t d[16], dmin[16];
  };

  static constexpr int low(const Block& b, int i) {
    return b.q[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15;
  }
  static constexpr int q(const Block& b, int i) {
    return low(b, i) | (b.high[i % 32] >> (i / 32) & 1) << 4;
  }
  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * b.pairs.scale(i / 32) * q(b, i) -
           f32_of_f16(b.dmin) * b.pairs.min(i / 32);
  }
  // Searches for the scales of least squared error, weighted by the factors.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    for (int s = 0; s < 8; ++s) {
      for (int k = 0; k < 4; ++k) {
        uint8_t fifth = 0;
        for (int g = 0; g < 8; ++g) fifth |= uint8_t(q(b, 32 * s + 4 * g + k) >> 4 << g);
        t.high[s][4 * r + k] = fifth;
        for (int g = 0; g < 4; ++g)
          t.q[s][64 * g + 4 * r + k] =
              uint8_t(low(b, 32 * s + 4 * g + k) | low(b, 32 * s + 16 + 4 * g + k) << 4);
      }
    }
    t.planes.put(b.pairs, r);
    t.d[r] = b.d, t.dmin[r] = b.dmin;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b{};
    for (int i = 0; i < 256; ++i) {
      const int s = i / 32, c = i % 32, g = c / 4, k = c % 4;
      b.q[32 * (i / 64) + c] |=
          uint8_t((t.q[s][64 * (g % 4) + 4 * r + k] >> 4 * (g / 4) & 15) << 4 * (s % 2));
      b.high[c] |= uint8_t((t.high[s][4 * r + k] >> g & 1) << s);
    }
    b.pairs = t.planes.get(r);
    b.d = t.d[r], b.dmin = t.dmin[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(q(b, 32 * sub + i));
    p.d = f32_of_f16(b.d) * b.pairs.scale(sub);
    p.m = -(f32_of_f16(b.dmin) * b.pairs.min(sub));
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    const auto fifth = V::load_bytes(t.high[sub]);
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(t.q[sub] + 64 * j);
      p.w[j] = V::or_bytes(V::low_nibbles(x), V::move_bits(fifth, j, 4, 1));
      p.w[j + 4] = V::or_bytes(V::high_nibbles(x), V::move_bits(fifth, j + 4, 4, 1));
    }
    t.planes.template scales<V>(t.d, t.dmin, sub, p);
  }
};
static_assert(sizeof(Q5_K::Block) == 176 && sizeof(Q5_K::Tile) == 16 * 176);

}  // namespace chaski
