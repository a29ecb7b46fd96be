// GGUF IQ3_S and IQ3_XXS: 256 columns in 8 sub-blocks of 32. Four columns share an index into a
// grid of quadruples of eight levels (grids.h); each column has its own sign.
//   IQ3_S    x = d * (2 scale + 1) * +-level, levels 1, 3, .. 15: 3.44 bits per weight
//   IQ3_XXS  x = d / 4 * (2 scale + 1) * +-level, levels 4, 12, .. 52, 62: 3.06 bits per weight.
//            Seven of eight signs are written; the eighth makes the number of minus signs even.
//
// Tile: 4.19 bits per weight, more than in the file, so that kernels look up no index. Per
// sub-block it has codes as in a q4_0 tile, three bits of level and one of sign, then scales (low
// nibble: the even sub-block) and d.
#pragma once
#include <bit>

#include "quant/entry.h"
#include "quant/gguf/grids.h"
#include "quant/half.h"
#include "quant/nibbles.h"

namespace chaski {

// Seven bits, and an eighth that makes the number of ones even.
constexpr int even_signs(uint32_t seven) {
  return int((seven & 127) | uint32_t(std::popcount(seven & 127) & 1) << 7);
}
constexpr uint32_t word_at(const uint8_t* p) {
  return p[0] | uint32_t(p[1]) << 8 | uint32_t(p[2]) << 16 | uint32_t(p[3]) << 24;
}
constexpr void or_word(uint8_t* p, uint32_t word) {
  for (int k = 0; k < 4; ++k) p[k] |= uint8_t(word >> 8 * k);
}

struct Iq3Tile {
  uint8_t q[8][256];
  uint8_t scale[4][16];
  uint16_t d[16];
};

// The common part of both. F provides grid(), index(), signs() (of eight columns), scale(), and
// set_...() for each, which expect a zeroed block.
template <class F>
struct Iq3 {
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr bool kInTwoSteps = true;
  static constexpr bool kLooksUp = true;
  using Tile = Iq3Tile;

  static int code(const auto& b, int i) {
    return F::grid().digit(F::index(b, i / 4), i % 4) | (F::signs(b, i / 8) >> i % 8 & 1) << 3;
  }
  static float d(const auto& b, int sub) {
    return f32_of_f16(b.d) * F::kUnit * float(2 * F::scale(b, sub) + 1);
  }
  static float at(const auto& b, int i) {
    return d(b, i / 32) * float(entry_of<F::kCodebook>(code(b, i)) - F::kDot.offset);
  }
  // The same for a tile, which needs no grid.
  static constexpr float tile_at(const Tile& t, int r, int i) {
    const int pair = t.q[i / 32][64 * (i % 16 / 4) + 4 * r + i % 4],
              scale = t.scale[i / 64][r] >> 4 * (i / 32 % 2) & 15;
    return f32_of_f16(t.d[r]) * F::kUnit * float(2 * scale + 1) *
           float(entry_of<F::kCodebook>(i % 32 < 16 ? pair & 15 : pair >> 4) - F::kDot.offset);
  }
  static void put(const auto& b, int r, Tile& t) {
    for (int i = 0; i < 256; ++i) {
      uint8_t& pair = t.q[i / 32][64 * (i % 16 / 4) + 4 * r + i % 4];
      pair = uint8_t(i % 32 < 16 ? code(b, i) : pair | code(b, i) << 4);
    }
    for (int i = 0; i < 4; ++i)
      t.scale[i][r] = uint8_t(F::scale(b, 2 * i) | F::scale(b, 2 * i + 1) << 4);
    t.d[r] = b.d;
  }
  static auto get(const Tile& t, int r) {
    typename F::Block b{};
    const auto code = [&](int i) {
      const int pair = t.q[i / 32][64 * (i % 16 / 4) + 4 * r + i % 4];
      return i % 32 < 16 ? pair & 15 : pair >> 4;
    };
    for (int g = 0; g < 64; ++g) {
      int tuple = 0;
      for (int k = 0; k < 4; ++k) tuple |= (code(4 * g + k) & 7) << 3 * k;
      F::set_index(b, g, F::grid().index_of(tuple));
    }
    for (int e = 0; e < 32; ++e) {
      int signs = 0;
      for (int k = 0; k < 8; ++k) signs |= code(8 * e + k) >> 3 << k;
      F::set_signs(b, e, signs);
    }
    for (int s = 0; s < 8; ++s) F::set_scale(b, s, t.scale[s / 2][r] >> 4 * (s % 2) & 15);
    b.d = t.d[r];
    return b;
  }
  static void row_panel(const auto& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = F::kCodebook[code(b, 32 * sub + i)];
    p.d = d(b, sub);
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    unpack_nibbles_by(F::kCodebook, t.q[sub], p);
    const auto scale =
        V::bit_and(V::shift_right(V::load_u8(t.scale[sub / 2]), 4 * (sub % 2)), V::set1_i32(15));
    const auto odd = V::to_float(V::add_i32(V::shift_left(scale, 1), V::set1_i32(1)));
    p.d = V::mul(V::mul(V::load_f16(t.d), V::set1(F::kUnit)), odd);
  }
};

struct IQ3_S : Iq3<IQ3_S> {
  static constexpr Format kFormat = Format::iq3_s;
  static constexpr std::string_view kName = "iq3_s";
  static constexpr int kGguf = 21;
  static constexpr DotKind kDot{.offset = 16, .max = 31};
  static constexpr float kUnit = 1;
  static constexpr uint8_t kCodebook[16] = {17, 19, 21, 23, 25, 27, 29, 31,
                                            15, 13, 11, 9,  7,  5,  3,  1};
  struct Block {
    uint16_t d;
    uint8_t q[64];     // low 8 bits of the indices
    uint8_t high[8];   // their ninth bits
    uint8_t sign[32];  // a bit a column
    uint8_t scales[4];
  };
  static const Grid& grid() { return iq3_s_grid(); }
  static int index(const Block& b, int g) { return b.q[g] | (b.high[g / 8] >> g % 8 & 1) << 8; }
  static int signs(const Block& b, int eight) { return b.sign[eight]; }
  static int scale(const Block& b, int sub) { return b.scales[sub / 2] >> 4 * (sub % 2) & 15; }
  static void set_index(Block& b, int g, int index) {
    b.q[g] = uint8_t(index), b.high[g / 8] |= uint8_t(index >> 8 << g % 8);
  }
  static void set_signs(Block& b, int eight, int signs) { b.sign[eight] = uint8_t(signs); }
  static void set_scale(Block& b, int sub, int scale) {
    b.scales[sub / 2] |= uint8_t(scale << 4 * (sub % 2));
  }
};
static_assert(sizeof(IQ3_S::Block) == 110);

struct IQ3_XXS : Iq3<IQ3_XXS> {
  static constexpr Format kFormat = Format::iq3_xxs;
  static constexpr std::string_view kName = "iq3_xxs";
  static constexpr int kGguf = 18;
  static constexpr DotKind kDot{.offset = 64, .max = 127};
  static constexpr float kUnit = 0.25f;
  static constexpr uint8_t kCodebook[16] = {68, 76, 84, 92, 100, 108, 116, 126,
                                            60, 52, 44, 36, 28,  20,  12,  2};
  struct Block {
    uint16_t d;
    uint8_t q[64];
    uint8_t words[32];  // per sub-block four times seven signs, and the scale
  };
  static const Grid& grid() { return iq3_xxs_grid(); }
  static int index(const Block& b, int g) { return b.q[g]; }
  static int signs(const Block& b, int eight) {
    return even_signs(word_at(b.words + eight / 4 * 4) >> 7 * (eight % 4));
  }
  static int scale(const Block& b, int sub) { return int(word_at(b.words + 4 * sub) >> 28); }
  static void set_index(Block& b, int g, int index) { b.q[g] = uint8_t(index); }
  static void set_signs(Block& b, int eight, int signs) {
    or_word(b.words + eight / 4 * 4, uint32_t(signs & 127) << 7 * (eight % 4));
  }
  static void set_scale(Block& b, int sub, int scale) {
    or_word(b.words + 4 * sub, uint32_t(scale) << 28);
  }
};
static_assert(sizeof(IQ3_XXS::Block) == 98);
static_assert(sizeof(Iq3Tile) == 16 * 134);

}  // namespace chaski
