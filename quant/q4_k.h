// GGUF Q4_K: 256 columns in 8 sub-blocks of 32, x = d * scale * q - dmin * min with 6-bit scale and min, 0 <= q <= 15.
//
// Tile (16 rows x 256 columns, the size of 16 blocks): per sub-block s the 256 bytes of a q4 tile; `low[s][r]` holds the low
// nibbles of scale and min, `high[s / 2][r]` their upper two bits: nibble s % 2, scale in its low pair, min in its high pair.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"
#include "quant/panel.h"

namespace chaski {

// The 12 bytes in which Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit mins.
struct SixBitPairs {
  uint8_t bytes[12];
  int scale(int s) const { return s < 4 ? bytes[s] & 63 : (bytes[s + 4] & 15) | bytes[s - 4] >> 6 << 4; }
  int min(int s) const { return s < 4 ? bytes[s + 4] & 63 : bytes[s + 4] >> 4 | bytes[s] >> 6 << 4; }
  void set(int s, int scale, int min) {  // on zeroed bytes
    if (s < 4) {
      bytes[s] |= scale, bytes[s + 4] |= min;
    } else {
      bytes[s + 4] |= (scale & 15) | min << 4;
      bytes[s - 4] |= scale >> 4 << 6, bytes[s] |= min >> 4 << 6;
    }
  }
};

struct Q4_K {
  static constexpr Format kFormat = Format::q4_k;
  static constexpr std::string_view kName = "q4_k";
  static constexpr int kGguf = 12;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 15, .mins = true};
  struct Block {
    uint16_t d, dmin;
    SixBitPairs pairs;
    uint8_t q[128];  // 64 columns to 32 bytes: the even sub-block in the low nibbles
  };
  struct Tile {
    uint8_t q[8][256];
    uint8_t low[8][16], high[4][16];
    uint16_t d[16], dmin[16];
  };

  static int q(const Block& b, int i) { return b.q[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15; }
  static float at(const Block& b, int i) {
    return f32_of_f16(b.d) * b.pairs.scale(i / 32) * q(b, i) - f32_of_f16(b.dmin) * b.pairs.min(i / 32);
  }
  static void put(const Block& b, int r, Tile& t) {
    for (int s = 0; s < 8; ++s) {
      for (int c = 0; c < 16; ++c)
        t.q[s][64 * (c / 4) + 4 * r + c % 4] = q(b, 32 * s + c) | q(b, 32 * s + 16 + c) << 4;
      const int scale = b.pairs.scale(s), min = b.pairs.min(s), pair = scale >> 4 | min >> 4 << 2;
      t.low[s][r] = (scale & 15) | (min & 15) << 4;
      t.high[s / 2][r] = s % 2 ? (t.high[s / 2][r] & 15) | pair << 4 : pair;
    }
    t.d[r] = b.d, t.dmin[r] = b.dmin;
  }
  static Block get(const Tile& t, int r) {
    Block b{};
    for (int s = 0; s < 8; ++s) {
      for (int c = 0; c < 16; ++c) {
        const uint8_t two = t.q[s][64 * (c / 4) + 4 * r + c % 4];
        b.q[32 * (s / 2) + c] |= (two & 15) << 4 * (s % 2);
        b.q[32 * (s / 2) + 16 + c] |= two >> 4 << 4 * (s % 2);
      }
      const int low = t.low[s][r], pair = t.high[s / 2][r] >> 4 * (s % 2) & 15;
      b.pairs.set(s, (low & 15) | (pair & 3) << 4, low >> 4 | pair >> 2 << 4);
    }
    b.d = t.d[r], b.dmin = t.dmin[r];
    return b;
  }
  static void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q(b, 32 * sub + i);
    p.d = f32_of_f16(b.d) * b.pairs.scale(sub);
    p.m = -(f32_of_f16(b.dmin) * b.pairs.min(sub));
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(t.q[sub] + 64 * j);
      p.w[j] = V::low_nibbles(x);
      p.w[j + 4] = V::high_nibbles(x);
    }
    const auto low = V::load_u8(t.low[sub]), high = V::shift_right(V::load_u8(t.high[sub / 2]), 4 * (sub % 2));
    const auto nibble = V::set1_i32(15), pair = V::set1_i32(3);
    const auto scale = V::bit_or(V::bit_and(low, nibble), V::shift_left(V::bit_and(high, pair), 4));
    const auto min = V::bit_or(V::shift_right(low, 4), V::shift_left(V::bit_and(V::shift_right(high, 2), pair), 4));
    p.d = V::mul(V::load_f16(t.d), V::to_float(scale));
    p.m = V::sub(V::zero(), V::mul(V::load_f16(t.dmin), V::to_float(min)));
  }
};
static_assert(sizeof(Q4_K::Block) == 144 && sizeof(Q4_K::Tile) == 16 * 144);

}  // namespace chaski
