// GGUF TQ1_0 and TQ2_0: ternary weights, 256 columns with one f16 scale, x = d * (q - 1). TQ2_0
// keeps q in 2 bits (q = 3 can be written and means 2 d). TQ1_0 keeps five q in a byte, as the
// digits of a fraction: 1.69 bits per weight.
//
// The tile of both has codes of 2 bits (two_bits.h), then the scales. So TQ1_0 takes 2.06 bits in
// memory, as TQ2_0 does. Several bytes mean the same five digits; get() returns the one that
// encoders write.
#pragma once
#include "quant/gguf/two_bits.h"
#include "quant/half.h"

namespace chaski {

struct TQ2_0 {
  static constexpr Format kFormat = Format::tq2_0;
  static constexpr std::string_view kName = "tq2_0";
  static constexpr int kGguf = 35;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.offset = 1, .max = 3};
  struct Block {
    uint8_t q[64];
    uint16_t d;
  };
  struct Tile : TileTwoBits {
    uint16_t d[16];
  };

  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * (two_bits_of(b.q, i) - 1);
  }
  // d = max |x|, nearest: exact for rows that are ternary.
  static void encode(const float* x, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b.q, r);
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b.q);
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(two_bits_of(b.q, 32 * sub + i));
    p.d = f32_of_f16(b.d);
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    t.unpack_codes(sub, p);
    p.d = V::load_f16(t.d);
  }
};
static_assert(sizeof(TQ2_0::Block) == 66 && sizeof(TQ2_0::Tile) == 16 * 66);

struct TQ1_0 {
  static constexpr Format kFormat = Format::tq1_0;
  static constexpr std::string_view kName = "tq1_0";
  static constexpr int kGguf = 34;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot = TQ2_0::kDot;
  using Tiles = TQ2_0;
  using Tile = TQ2_0::Tile;
  struct Block {
    uint8_t q[52];  // columns 0..159 five to a byte, 160..239 too, 240..255 four to a byte
    uint16_t d;
  };

  // The byte of column i, and the position of its digit.
  struct Place {
    int byte, digit;
  };
  static constexpr Place place(int i) {
    if (i < 160) return {i % 32, i / 32};
    if (i < 240) return {32 + i % 16, (i - 160) / 16};
    return {48 + i % 4, (i - 240) / 4};
  }
  // A byte is a fraction of 256. Its first digit in base 3 is the integer part after one
  // multiplication by 3.
  static constexpr int q(const Block& b, int i) {
    const Place at = place(i);
    int fraction = b.q[at.byte];
    for (int k = 0; k < at.digit; ++k) fraction = fraction * 3 & 255;
    return fraction * 3 >> 8;
  }
  static constexpr float at(const Block& b, int i) { return f32_of_f16(b.d) * (q(b, i) - 1); }
  static void put(const Block& b, int r, Tile& t) {
    TQ2_0::Block two{};
    for (int i = 0; i < 256; ++i)
      two.q[32 * (i / 128) + i % 32] |= uint8_t(q(b, i) << 2 * (i % 128 / 32));
    two.d = b.d;
    TQ2_0::put(two, r, t);
  }
  static constexpr Block get(const Tile& t, int r) {
    const TQ2_0::Block two = TQ2_0::get(t, r);
    int sums[52] = {};
    for (int i = 0; i < 256; ++i) {
      constexpr int kWorth[5] = {81, 27, 9, 3, 1};
      const Place at = place(i);
      sums[at.byte] += two_bits_of(two.q, i) * kWorth[at.digit];
    }
    Block b{};
    // the least fraction that has these digits
    for (int i = 0; i < 52; ++i) b.q[i] = uint8_t((sums[i] * 256 + 242) / 243);
    b.d = two.d;
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(q(b, 32 * sub + i));
    p.d = f32_of_f16(b.d);
  }
};
static_assert(sizeof(TQ1_0::Block) == 54);

}  // namespace chaski
