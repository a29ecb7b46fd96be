// GGUF Q6_K: 256 columns in 16 sub-blocks of 16, x = d * scale * (q - 32) with int8 scales, 0 <= q
// <= 63.
//
// Tile (the size of 16 blocks): per 32 columns the 256 low nibbles of a q4 tile and 128 bytes of
// upper bit pairs: byte 64 (g % 2) + 4r + k, bits 2 (g / 2), belongs to row r, column 4g + k.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"
#include "quant/panel.h"

namespace chaski {

struct Q6_K {
  static constexpr Format kFormat = Format::q6_k;
  static constexpr std::string_view kName = "q6_k";
  static constexpr int kGguf = 14;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.offset = 32, .max = 63, .halves = true};
  struct Block {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scale[16];
    uint16_t d;
  };
  struct Tile {
    uint8_t low[8][256], high[8][128];
    int8_t scale[16][16];  // [sub-block of 16][row]
    uint16_t d[16];
  };

  // A half of 128 columns has 64 low and 32 high bytes; its four groups of 32 are j = 0..3.
  static constexpr int q(const Block& b, int i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32;
    return (b.low[64 * half + 32 * (j % 2) + l] >> 4 * (j / 2) & 15) |
           (b.high[32 * half + l] >> 2 * j & 3) << 4;
  }
  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * b.scale[i / 16] * (q(b, i) - 32);
  }
  // Searches for the scales of least squared error, weighted by the factors.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    for (int s = 0; s < 8; ++s) {
      for (int k = 0; k < 4; ++k) {
        for (int g = 0; g < 4; ++g)
          t.low[s][64 * g + 4 * r + k] =
              (q(b, 32 * s + 4 * g + k) & 15) | (q(b, 32 * s + 16 + 4 * g + k) & 15) << 4;
        for (int odd = 0; odd < 2; ++odd) {
          uint8_t pairs = 0;
          for (int g = odd; g < 8; g += 2) pairs |= q(b, 32 * s + 4 * g + k) >> 4 << 2 * (g / 2);
          t.high[s][64 * odd + 4 * r + k] = pairs;
        }
      }
    }
    for (int s = 0; s < 16; ++s) t.scale[s][r] = b.scale[s];
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b{};
    for (int i = 0; i < 256; ++i) {
      const int s = i / 32, c = i % 32, g = c / 4, k = c % 4;
      const int low = t.low[s][64 * (g % 4) + 4 * r + k] >> 4 * (g / 4) & 15;
      const int high = t.high[s][64 * (g % 2) + 4 * r + k] >> 2 * (g / 2) & 3;
      const int half = i / 128, j = i % 128 / 32;
      b.low[64 * half + 32 * (j % 2) + c] |= low << 4 * (j / 2);
      b.high[32 * half + c] |= high << 2 * j;
    }
    for (int s = 0; s < 16; ++s) b.scale[s] = t.scale[s][r];
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = q(b, 32 * sub + i);
    p.d = f32_of_f16(b.d);
    for (int h = 0; h < 2; ++h) p.s[h] = b.scale[2 * sub + h];
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    const typename V::B high[2] = {V::load_bytes(t.high[sub]), V::load_bytes(t.high[sub] + 64)};
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(t.low[sub] + 64 * j);
      p.w[j] = V::or_bytes(V::low_nibbles(x), V::move_bits(high[j % 2], j / 2 * 2, 4, 3));
      p.w[j + 4] = V::or_bytes(V::high_nibbles(x), V::move_bits(high[j % 2], 4 + j / 2 * 2, 4, 3));
    }
    for (int h = 0; h < 2; ++h) p.s[h] = V::load_i8(t.scale[2 * sub + h]);
    p.d = V::load_f16(t.d);
  }
};
static_assert(sizeof(Q6_K::Block) == 210 && sizeof(Q6_K::Tile) == 16 * 210);

}  // namespace chaski
