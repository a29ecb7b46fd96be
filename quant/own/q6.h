// chaski's own 6 bits: blocks of 32, 64 levels that are equally far apart, 6.25 bits per weight and
// 16 more per row.
//
//   x = d * (q - centre),  d = unit * (scale & 63)
//
// A block has its codes and one byte: 6 bits of scale in units of the row, and 2 bits that choose
// one of four centres.
//
// Tile: the lower 4 bits as in nibbles.h. Bits 2 (g / 2) of byte 64 (g % 2) + 4r + k of `high`
// belong to row r, column 4g + k. Then come the 16 bytes of scale. A strip begins with 16 units
// (bfloat16).
#pragma once
#include <cstring>

#include "quant/entry.h"
#include "quant/half.h"
#include "quant/nibbles.h"

namespace chaski {

struct Q6 {
  static constexpr Format kFormat = Format::q6;
  static constexpr std::string_view kName = "q6";
  static constexpr int kGguf = -1;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 63, .mins = true};
  static constexpr int kCentres[4] = {26, 30, 33, 37};
  alignas(32) static constexpr float kMinusCentres[8] = {-26, -30, -33, -37, 0, 0, 0, 0};

  using RowHeader = uint16_t;  // unit, bfloat16
  struct Block {
    uint8_t q[16];    // low nibbles: columns 0..15, high nibbles: 16..31
    uint8_t high[8];  // bits 2 (i / 8) of byte i % 8: column i
    uint8_t scale;    // bits 0-5 scale, 6-7 centre
  };
  struct Tile : TileNibbles {
    uint8_t high[2][64];
    uint8_t scale[16];
  };

  static constexpr int code(const Block& b, int i) {
    return nibble_of(b.q, i) | (b.high[i % 8] >> 2 * (i / 8) & 3) << 4;
  }
  static void put_code(Block& b, int i, int code) {
    put_nibble(b.q, i, code & 15);
    const int place = 2 * (i / 8);
    b.high[i % 8] = uint8_t((b.high[i % 8] & ~(3 << place)) | code >> 4 << place);
  }
  static constexpr float d(RowHeader unit, const Block& b) {
    return f32_of_bf16(unit) * float(b.scale & 63);
  }
  static constexpr int centre(const Block& b) { return entry_of<kCentres>(b.scale >> 6); }

  static constexpr float at(RowHeader unit, const Block& b, int i) {
    return d(unit, b) * float(code(b, i) - centre(b));
  }
  // A row's unit. 62 units must reach the largest value of the row from the better of the two inner
  // centres.
  static RowHeader header_of(const float* row, int64_t cols);
  // Searches for the scale byte of least squared error, weighted by the factors.
  static void encode(RowHeader unit, const float* x, const float* factors, Effort effort,
                     Block& block);
  // Gives value i the nearest code under the block's scale.
  static void round(RowHeader unit, Block& block, int i, float x);
  // The unit of a row of random codes and scales, whose root mean square is 19 x 37 units.
  static RowHeader header_of_random(float rms) { return bf16_of_f32(rms / 700); }

  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b.q, r);
    for (int h = 0; h < 2; ++h) std::memcpy(t.high[h] + 4 * r, b.high + 4 * h, 4);
    t.scale[r] = b.scale;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b.q);
    for (int h = 0; h < 2; ++h) __builtin_memcpy(b.high + 4 * h, t.high[h] + 4 * r, 4);
    b.scale = t.scale[r];
    return b;
  }
  static constexpr void row_panel(RowHeader unit, const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(code(b, i));
    p.d = d(unit, b);
    p.m = -(p.d * float(centre(b)));
  }
  template <class V>
  static void unpack(const RowHeader* units, const Tile& t, int, Panel<V>& p) {
    const typename V::B high[2] = {V::load_bytes(t.high[0]), V::load_bytes(t.high[1])};
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(t.q + 64 * j);
      p.w[j] = V::or_bytes(V::low_nibbles(x), V::move_bits(high[j % 2], j / 2 * 2, 4, 3));
      p.w[j + 4] = V::or_bytes(V::high_nibbles(x), V::move_bits(high[j % 2], 4 + j / 2 * 2, 4, 3));
    }
    const auto s = V::load_u8(t.scale);
    p.d = V::mul(V::load_bf16(units), V::to_float(V::bit_and(s, V::set1_i32(63))));
    p.m = V::mul(p.d, V::pick(kMinusCentres, V::shift_right(s, 6)));
  }
};
static_assert(sizeof(Q6::Block) == 25 && sizeof(Q6::Tile) == 16 * 25);

}  // namespace chaski
