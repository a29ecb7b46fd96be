// chaski's 4 bits with a scale per half block. Codebook, centres and scale byte are q4's (q4.h),
// with one scale byte for 16 columns instead of 32. 4.5 bits per weight and 16 more per row. The
// relative squared error on Gaussian rows is .0037, compared with .0051 for q4.
//
//   x = unit * s * (codebook[q] - centre),  s = +-(scale & 31)
//
// s and s * centre are integers, so a block of 32 is still one exact integer: |s0 sum0 + s1 sum1|
// <= 31 * 32 * 63 * 127 < 2^23.
//
// Tile: the codes as in nibbles.h, then 16 bytes of scale for each half. A strip begins with 16
// units.
#pragma once
#include "quant/own/q4.h"

namespace chaski {

struct Q4H : ScaledNibbles<2> {
  static constexpr bool kLooksUp = true;
  static constexpr Format kFormat = Format::q4h;
  static constexpr std::string_view kName = "q4h";
  static constexpr DotKind kDot{.max = 63, .mins = true, .halves = true};

  static constexpr int s(const Block& b, int half) {
    return b.scale[half] & 128 ? -(b.scale[half] & 31) : b.scale[half] & 31;
  }
  static constexpr int centre(const Block& b, int half) {
    return int(Q4::kCentre) + (b.scale[half] >> 5 & 3) * int(Q4::kCentreStep);
  }

  static constexpr float at(RowHeader unit, const Block& b, int i) {
    return f32_of_bf16(unit) * float(s(b, i / 16)) *
           float(entry_of<Q4::kCodebook>(code(b, i)) - centre(b, i / 16));
  }
  static constexpr void row_panel(RowHeader unit, const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = Q4::kCodebook[code(b, i)];
    p.d = p.m = f32_of_bf16(unit);
    for (int h = 0; h < 2; ++h) p.s[h] = s(b, h), p.mins[h] = -s(b, h) * centre(b, h);
  }
  template <class V>
  static void unpack(const RowHeader* units, const Tile& t, int, Panel<V>& p) {
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(t.q + 64 * j);
      p.w[j] = V::lookup_low(Q4::kCodebook, x);
      p.w[j + 4] = V::lookup_high(Q4::kCodebook, x);
    }
    p.d = p.m = V::load_bf16(units);
    for (int h = 0; h < 2; ++h) {
      const auto byte = V::load_u8(t.scale[h]), choice = V::shift_right(byte, 5);
      const auto size = V::to_float(V::bit_and(byte, V::set1_i32(31)));
      p.s[h] = V::to_int(V::mul(size, V::pick(Q4::kSigns, choice)));
      p.mins[h] = V::to_int(V::mul(size, V::pick(Q4::kMinusCentres, choice)));
    }
  }
};
static_assert(sizeof(Q4H::Block) == 18 && sizeof(Q4H::Tile) == 16 * 18);

}  // namespace chaski
