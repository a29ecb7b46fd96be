// GGUF IQ2_XXS, IQ2_XS, IQ2_S and IQ1_M: 256 columns. Eight columns share an index into a grid of
// tuples of three levels (grids.h).
//   IQ2    x = d / 8 * (2 scale + 1) * +-level, levels 8, 25, 43. XXS and XS write seven of eight
//          signs; the eighth makes the number of minus signs even. XXS has a scale per 32 columns,
//          2.06 bits per weight. XS and S have one per 16, 2.31 and 2.56 bits.
//   IQ1_M  x = d / 8 * (2 scale + 1) * (8 (digit - 1) +- 1), the sign for eight columns: 1.75 bits.
//          Its f16 d is in the upper nibbles of the scales.
// IQ1_S, whose sign is for 32 columns, is in iq1_s.h.
//
// Tile: 3.31 bits per weight, more than in the file, so that kernels look up no index. It has codes
// of three bits: two for the digit (two_bits.h), and one for the sign (stored like the third bits
// in q3_k.h). A codebook of bytes turns them into values. Then come scales per 16 columns (low
// nibble: the even ones) and d.
#pragma once
#include "quant/entry.h"
#include "quant/gguf/iq3.h"
#include "quant/gguf/two_bits.h"

namespace chaski {

struct ThreeBitTile : TileTwoBits {
  uint8_t high[8][64];
  uint8_t scale[8][16];
  uint16_t d[16];

  // code(i) of the 256 columns of row r.
  void put_three(int r, auto code) {
    uint8_t low[64] = {};
    for (int i = 0; i < 256; ++i)
      low[32 * (i / 128) + i % 32] |= uint8_t((code(i) & 3) << 2 * (i % 128 / 32));
    put_codes(low, r);
    for (int i = 0; i < 256; ++i) {
      uint8_t& byte = high[i / 32][4 * r + i % 4];
      byte = uint8_t(i % 32 < 4 ? code(i) >> 2 : byte | code(i) >> 2 << i % 32 / 4);
    }
  }
  constexpr int third(int r, int i) const { return high[i / 32][4 * r + i % 4] >> i % 32 / 4 & 1; }
};

// The common part of all four. F provides grid(), index(), signs() (of eight columns), scale() (of
// 16), d(), and set_...() for each, which expect a zeroed block.
template <class F>
struct ThreeBits {
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr bool kInTwoSteps = true;
  static constexpr bool kLooksUp = true;
  static constexpr DotKind kDot{.offset = 64, .max = 127, .halves = true};
  using Tile = ThreeBitTile;

  static int code(const auto& b, int i) {
    return F::grid().digit(F::index(b, i / 8), i % 8) | (F::signs(b, i / 8) >> i % 8 & 1) << 2;
  }
  static float at(const auto& b, int i) {
    return f32_of_f16(F::d(b)) * 0.125f * float(2 * F::scale(b, i / 16) + 1) *
           float(entry_of<F::kCodebook>(code(b, i)) - 64);
  }
  // The same for a tile, which needs no grid; `F` is another format that has these tiles.
  static constexpr float tile_at(const Tile& t, int r, int i) {
    const int pair = t.q[i / 32][i / 16 % 2][4 * r + i % 4] >> 2 * (i / 4 % 4) & 3,
              scale = t.scale[i / 32][r] >> 4 * (i / 16 % 2) & 15;
    return f32_of_f16(t.d[r]) * 0.125f * float(2 * scale + 1) *
           float(entry_of<F::kCodebook>(pair | t.third(r, i) << 2) - 64);
  }
  static void put(const auto& b, int r, Tile& t) {
    t.put_three(r, [&](int i) { return code(b, i); });
    for (int i = 0; i < 8; ++i)
      t.scale[i][r] = uint8_t(F::scale(b, 2 * i) | F::scale(b, 2 * i + 1) << 4);
    t.d[r] = F::d(b);
  }
  static auto get(const Tile& t, int r) {
    typename F::Block b{};
    uint8_t low[64];
    t.get_codes(r, low);
    for (int g = 0; g < 32; ++g) {
      int tuple = 0, signs = 0;
      for (int k = 0; k < 8; ++k) {
        tuple |= two_bits_of(low, 8 * g + k) << 2 * k;
        signs |= t.third(r, 8 * g + k) << k;
      }
      F::set_eight(b, g, F::grid().index_of(tuple), signs);
    }
    for (int h = 0; h < 16; ++h) F::set_scale(b, h, t.scale[h / 2][r] >> 4 * (h % 2) & 15);
    F::set_d(b, t.d[r]);
    return b;
  }
  static void row_panel(const auto& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = F::kCodebook[code(b, 32 * sub + i)];
    p.d = f32_of_f16(F::d(b)) * 0.125f;
    for (int h = 0; h < 2; ++h) p.s[h] = 2 * F::scale(b, 2 * sub + h) + 1;
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    const auto thirds = V::load_bytes(t.high[sub]);
    t.unpack_codes(sub, p, [&](int g, auto pairs) {
      return V::lookup_low(F::kCodebook, V::or_bytes(pairs, V::move_bits(thirds, g, 2, 1)));
    });
    const auto scales = V::load_u8(t.scale[sub]), one = V::set1_i32(1);
    p.s[0] = V::bit_or(V::shift_left(V::bit_and(scales, V::set1_i32(15)), 1), one);
    p.s[1] = V::bit_or(V::shift_left(V::shift_right(scales, 4), 1), one);
    p.d = V::mul(V::load_f16(t.d), V::set1(0.125f));
  }
};

// Levels, then their negatives; a digit of 3, which no grid has, is 0.
struct Iq2Levels {
  static constexpr uint8_t kCodebook[16] = {72, 89, 107, 64, 56, 39, 21, 64,
                                            72, 89, 107, 64, 56, 39, 21, 64};
  static uint16_t d(const auto& b) { return b.d; }
  static void set_d(auto& b, uint16_t d) { b.d = d; }
};

struct IQ2_S : ThreeBits<IQ2_S>, Iq2Levels {
  static constexpr Format kFormat = Format::iq2_s;
  static constexpr std::string_view kName = "iq2_s";
  static constexpr int kGguf = 22;
  struct Block {
    uint16_t d;
    uint8_t q[32];     // low 8 bits of the indices
    uint8_t sign[32];  // a bit a column
    uint8_t high[8];   // two more bits of the indices
    uint8_t scales[8];
  };
  static const Grid& grid() { return iq2_s_grid(); }
  static int index(const Block& b, int g) {
    return b.q[g] | (b.high[g / 4] >> 2 * (g % 4) & 3) << 8;
  }
  static int signs(const Block& b, int g) { return b.sign[g]; }
  static int scale(const Block& b, int h) { return b.scales[h / 2] >> 4 * (h % 2) & 15; }
  static void set_eight(Block& b, int g, int index, int signs) {
    b.q[g] = uint8_t(index), b.sign[g] = uint8_t(signs);
    b.high[g / 4] |= uint8_t(index >> 8 << 2 * (g % 4));
  }
  static void set_scale(Block& b, int h, int scale) {
    b.scales[h / 2] |= uint8_t(scale << 4 * (h % 2));
  }
};

struct IQ2_XS : ThreeBits<IQ2_XS>, Iq2Levels {
  static constexpr Format kFormat = Format::iq2_xs;
  static constexpr std::string_view kName = "iq2_xs";
  static constexpr int kGguf = 17;
  using Tiles = IQ2_S;
  struct Block {
    uint16_t d;
    uint16_t q[32];  // nine bits of index, seven signs
    uint8_t scales[8];
  };
  static const Grid& grid() { return iq2_xs_grid(); }
  static int index(const Block& b, int g) { return b.q[g] & 511; }
  static int signs(const Block& b, int g) { return even_signs(b.q[g] >> 9); }
  static int scale(const Block& b, int h) { return b.scales[h / 2] >> 4 * (h % 2) & 15; }
  static void set_eight(Block& b, int g, int index, int signs) {
    b.q[g] = uint16_t(index | (signs & 127) << 9);
  }
  static void set_scale(Block& b, int h, int scale) {
    b.scales[h / 2] |= uint8_t(scale << 4 * (h % 2));
  }
};

struct IQ2_XXS : ThreeBits<IQ2_XXS>, Iq2Levels {
  static constexpr Format kFormat = Format::iq2_xxs;
  static constexpr std::string_view kName = "iq2_xxs";
  static constexpr int kGguf = 16;
  using Tiles = IQ2_S;
  struct Block {
    uint16_t d;
    uint8_t q[64];  // per 32 columns four indices, then four times seven signs and the scale
  };
  static const Grid& grid() { return iq2_xxs_grid(); }
  static int index(const Block& b, int g) { return b.q[g / 4 * 8 + g % 4]; }
  static uint32_t word(const Block& b, int sub) { return word_at(b.q + 8 * sub + 4); }
  static int signs(const Block& b, int g) { return even_signs(word(b, g / 4) >> 7 * (g % 4)); }
  static int scale(const Block& b, int h) { return int(word(b, h / 2) >> 28); }
  static void set_eight(Block& b, int g, int index, int signs) {
    b.q[g / 4 * 8 + g % 4] = uint8_t(index);
    or_word(b.q + g / 4 * 8 + 4, uint32_t(signs & 127) << 7 * (g % 4));
  }
  static void set_scale(Block& b, int h, int scale) {  // both halves have the same
    or_word(b.q + h / 2 * 8 + 4, uint32_t(scale) << 28);
  }
};

struct IQ1_M : ThreeBits<IQ1_M> {
  static constexpr Format kFormat = Format::iq1_m;
  static constexpr std::string_view kName = "iq1_m";
  static constexpr int kGguf = 29;
  static constexpr uint8_t kCodebook[16] = {57, 65, 73, 64, 55, 63, 71, 64,
                                            57, 65, 73, 64, 55, 63, 71, 64};
  struct Block {
    uint8_t q[32];       // low 8 bits of the indices
    uint8_t high[16];    // per index a nibble: three more bits, and the sign
    uint16_t scales[4];  // four times three bits, and a nibble of d, the lowest first
  };
  static const Grid& grid() { return iq1_grid(); }
  static int nibble(const Block& b, int g) { return b.high[g / 2] >> 4 * (g % 2) & 15; }
  static int index(const Block& b, int g) { return b.q[g] | (nibble(b, g) & 7) << 8; }
  static int signs(const Block& b, int g) { return nibble(b, g) & 8 ? 255 : 0; }
  static int scale(const Block& b, int h) { return b.scales[h / 4] >> 3 * (h % 4) & 7; }
  static uint16_t d(const Block& b) {
    uint16_t d = 0;
    for (int i = 0; i < 4; ++i) d |= uint16_t(b.scales[i] >> 12 << 4 * i);
    return d;
  }
  static void set_eight(Block& b, int g, int index, int signs) {
    b.q[g] = uint8_t(index);
    b.high[g / 2] |= uint8_t((index >> 8 | (signs & 1) << 3) << 4 * (g % 2));
  }
  static void set_scale(Block& b, int h, int scale) {
    b.scales[h / 4] |= uint16_t(scale << 3 * (h % 4));
  }
  static void set_scale(Block& b, float scale) { set_d(b, f16_of_f32(scale)); }
  static void set_d(Block& b, uint16_t d) {
    for (int i = 0; i < 4; ++i)
      b.scales[i] = uint16_t((b.scales[i] & 0xfff) | (d >> 4 * i & 15) << 12);
  }
};
static_assert(sizeof(IQ2_S::Block) == 82 && sizeof(IQ2_XS::Block) == 74);
static_assert(sizeof(IQ2_XXS::Block) == 66 && sizeof(IQ1_M::Block) == 56);
static_assert(sizeof(ThreeBitTile) == 16 * 106);

}  // namespace chaski
