// chaski's own 4 bits: blocks of 32, a non-linear codebook, 4.25 bits per weight and 16 more per
// row. Squared error on Gaussian rows .0051 of the weights', against .0067 of Q4_0 at 4.5 bits.
//
//   x = d * (codebook[q] - centre),  d = +-unit * (scale & 31)
//
// A block has its codes and one byte: 5 bits of scale in units of the row, 2 bits that choose one
// of four centres, and 1 bit that mirrors the codebook. The centres shift the codebook, because a
// block's values are seldom balanced around zero. Codebook and centres come from Lloyd's iteration
// (Lloyd 1982) over Gaussian blocks with all three choices searched. The codebook is unsigned and
// ends at 63, so two products fit an int16.
//
// Tile: the codes as in nibbles.h, then the 16 bytes of scale. The row's unit is a bfloat16 before
// the blocks of the row; a strip begins with 16 of them.
#pragma once
#include <cstring>

#include "quant/entry.h"
#include "quant/format.h"
#include "quant/half.h"
#include "quant/nibbles.h"

namespace chaski {

// The common part of q4 and q4h: a row's unit, 32 codes, and a scale byte for every 32 / kScales of
// them.
template <int kScales>
struct ScaledNibbles {
  static constexpr int kGguf = -1;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;

  using RowHeader = uint16_t;  // unit, bfloat16
  struct Block {
    uint8_t q[16];           // low nibbles: columns 0..15, high nibbles: 16..31
    uint8_t scale[kScales];  // bits 0-4 scale, 5-6 centre, 7 sign
  };
  struct Tile {
    uint8_t q[256];
    uint8_t scale[kScales][16];
  };

  static constexpr int code(const Block& b, int i) {
    return i < 16 ? b.q[i] & 15 : b.q[i - 16] >> 4;
  }
  // A row's unit. The largest scale is 31 units, and the codebook reaches 25 steps from its centre
  // on its shorter side. The product of both must reach the row's largest value.
  static RowHeader header_of(const float* row, int64_t cols);
  // For each scale byte it tries sign x centre x up to six levels of scale, and takes the one of
  // least squared error, weighted by the factors.
  static void encode(RowHeader unit, const float* x, const float* factors, Effort effort,
                     Block& block);
  // Gives value i the nearest code under the block's scale.
  static void round(RowHeader unit, Block& block, int i, float x);
  // The unit of a row of random codes and scales, whose root mean square is 17 x 18 units.
  static RowHeader header_of_random(float rms) { return bf16_of_f32(rms / 320); }
  static void put(const Block& b, int r, Tile& t) {
    for (int j = 0; j < 4; ++j) std::memcpy(t.q + 64 * j + 4 * r, b.q + 4 * j, 4);
    for (int s = 0; s < kScales; ++s) t.scale[s][r] = b.scale[s];
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    for (int j = 0; j < 4; ++j) __builtin_memcpy(b.q + 4 * j, t.q + 64 * j + 4 * r, 4);
    for (int s = 0; s < kScales; ++s) b.scale[s] = t.scale[s][r];
    return b;
  }
};

struct Q4 : ScaledNibbles<1> {
  static constexpr bool kLooksUp = true;
  static constexpr Format kFormat = Format::q4;
  static constexpr std::string_view kName = "q4";
  static constexpr DotKind kDot{.max = 63, .mins = true};
  static constexpr uint8_t kCodebook[16] = {0,  6,  11, 16, 20, 23, 26, 30,
                                            33, 36, 39, 42, 46, 50, 55, 63};
  // A value is (code - centre) x scale. The centres 26 and 30 are also codes, so zero is exact.
  static constexpr float kCentre = 26, kCentreStep = 4;

  // Indexed by the upper three bits of the scale byte.
  alignas(32) static constexpr float kSigns[8] = {1, 1, 1, 1, -1, -1, -1, -1};
  alignas(32) static constexpr float kMinusCentres[8] = {-26, -30, -34, -38, 26, 30, 34, 38};
  static_assert(kMinusCentres[0] == -kCentre && kMinusCentres[7] == kCentre + 3 * kCentreStep);

  static constexpr float d(RowHeader unit, const Block& b) {
    const float d = f32_of_bf16(unit) * float(b.scale[0] & 31);
    return b.scale[0] & 128 ? -d : d;
  }
  static constexpr float centre(const Block& b) {
    return kCentre + float(b.scale[0] >> 5 & 3) * kCentreStep;
  }
  static constexpr float at(RowHeader unit, const Block& b, int i) {
    return d(unit, b) * (float(entry_of<kCodebook>(code(b, i))) - centre(b));
  }
  static constexpr void row_panel(RowHeader unit, const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = kCodebook[code(b, i)];
    p.d = d(unit, b);
    p.m = -(p.d * centre(b));
  }
  template <class V>
  static void unpack(const RowHeader* units, const Tile& t, int, Panel<V>& p) {
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(t.q + 64 * j);
      p.w[j] = V::lookup_low(kCodebook, x);
      p.w[j + 4] = V::lookup_high(kCodebook, x);
    }
    // The upper three bits choose one of 8 signs, and one of 8 centres with their signs.
    const auto s = V::load_u8(t.scale[0]), choice = V::shift_right(s, 5);
    const auto size = V::mul(V::load_bf16(units), V::to_float(V::bit_and(s, V::set1_i32(31))));
    p.d = V::mul(size, V::pick(kSigns, choice));
    p.m = V::mul(size, V::pick(kMinusCentres, choice));
  }
};
static_assert(sizeof(Q4::Block) == 17 && sizeof(Q4::Tile) == 16 * 17);

}  // namespace chaski
