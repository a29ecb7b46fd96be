// GGUF Q4_K: 256 columns in 8 sub-blocks of 32, x = d * scale * q - dmin * min with 6-bit scale and
// min, 0 <= q <= 15.
//
// Tile (16 rows x 256 columns, the size of 16 blocks): per sub-block the 256 bytes of codes of a
// q4_0 tile, then the scales.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"
#include "quant/panel.h"

namespace chaski {

// The 12 bytes in which Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit mins.
struct SixBitPairs {
  uint8_t bytes[12];
  constexpr int scale(int s) const {
    return s < 4 ? bytes[s] & 63 : (bytes[s + 4] & 15) | bytes[s - 4] >> 6 << 4;
  }
  constexpr int min(int s) const {
    return s < 4 ? bytes[s + 4] & 63 : bytes[s + 4] >> 4 | bytes[s] >> 6 << 4;
  }
  constexpr void set(int s, int scale, int min) {  // on zeroed bytes
    if (s < 4) {
      bytes[s] |= scale, bytes[s + 4] |= min;
    } else {
      bytes[s + 4] |= (scale & 15) | min << 4;
      bytes[s - 4] |= scale >> 4 << 6, bytes[s] |= min >> 4 << 6;
    }
  }
};

// The same for 16 rows, as in tiles: `low[s][r]` holds the low nibbles of scale and min,
// `high[s / 2][r]` their upper two bits: nibble s % 2, scale in its low pair, min in its high pair.
struct SixBitPlanes {
  uint8_t low[8][16], high[4][16];

  void put(const SixBitPairs& pairs, int r) {
    for (int s = 0; s < 8; ++s) {
      const int scale = pairs.scale(s), min = pairs.min(s), upper = scale >> 4 | min >> 4 << 2;
      low[s][r] = uint8_t((scale & 15) | (min & 15) << 4);
      high[s / 2][r] = uint8_t(s % 2 ? (high[s / 2][r] & 15) | upper << 4 : upper);
    }
  }
  constexpr SixBitPairs get(int r) const {
    SixBitPairs pairs{};
    for (int s = 0; s < 8; ++s) {
      const int upper = high[s / 2][r] >> 4 * (s % 2) & 15;
      pairs.set(s, (low[s][r] & 15) | (upper & 3) << 4, low[s][r] >> 4 | upper >> 2 << 4);
    }
    return pairs;
  }
  // Computes the panel's d and m of sub-block s from the rows' d and dmin.
  template <class V>
  inline __attribute__((always_inline)) void scales(const uint16_t* d, const uint16_t* dmin, int s,
                                                    Panel<V>& p) const {
    const auto l = V::load_u8(low[s]), h = V::shift_right(V::load_u8(high[s / 2]), 4 * (s % 2));
    const auto nibble = V::set1_i32(15), pair = V::set1_i32(3);
    const auto scale = V::bit_or(V::bit_and(l, nibble), V::shift_left(V::bit_and(h, pair), 4));
    const auto min =
        V::bit_or(V::shift_right(l, 4), V::shift_left(V::bit_and(V::shift_right(h, 2), pair), 4));
    p.d = V::mul(V::load_f16(d), V::to_float(scale));
    p.m = V::sub(V::zero(), V::mul(V::load_f16(dmin), V::to_float(min)));
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
    SixBitPlanes planes;
    uint16_t d[16], dmin[16];
  };

  static constexpr int q(const Block& b, int i) {
    return b.q[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15;
  }
  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * b.pairs.scale(i / 32) * q(b, i) -
           f32_of_f16(b.dmin) * b.pairs.min(i / 32);
  }
  // Searches for the scales of least squared error, weighted by the factors.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    for (int s = 0; s < 8; ++s)
      for (int c = 0; c < 16; ++c)
        t.q[s][64 * (c / 4) + 4 * r + c % 4] =
            uint8_t(q(b, 32 * s + c) | q(b, 32 * s + 16 + c) << 4);
    t.planes.put(b.pairs, r);
    t.d[r] = b.d, t.dmin[r] = b.dmin;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b{};
    b.pairs = t.planes.get(r);
    for (int s = 0; s < 8; ++s) {
      for (int c = 0; c < 16; ++c) {
        const uint8_t two = t.q[s][64 * (c / 4) + 4 * r + c % 4];
        b.q[32 * (s / 2) + c] |= (two & 15) << 4 * (s % 2);
        b.q[32 * (s / 2) + 16 + c] |= two >> 4 << 4 * (s % 2);
      }
    }
    b.d = t.d[r], b.dmin = t.dmin[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
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
    t.planes.template scales<V>(t.d, t.dmin, sub, p);
  }
};
static_assert(sizeof(Q4_K::Block) == 144 && sizeof(Q4_K::Tile) == 16 * 144);

}  // namespace chaski
