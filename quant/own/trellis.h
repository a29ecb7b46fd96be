// The common part of chaski's own formats of 2 to 5 bits: trellis codes (Marcellin and Fischer
// 1990). q4 and q4h do not use them, because they are made for speed.
//
// The codebook has twice as many levels as a column's code can select. A column chooses among the
// even levels or among the odd ones; the columns before it decide which. One bit of each column, b,
// is its step on a path; the other bits are its `rest`:
//
//   upper = b(i) ^ b(i-1) ^ b(i-3),  lower = b(i-2)      (8 states, Ungerboeck 1982)
//   level = codebook[4 * rest + 2 * upper + lower]             (q5: level = 4 * rest + ...)
//
// The encoder searches for the path with the least total error of all columns (Viterbi 1967). The
// bits before the first column are zeros.
//
// A row's 32 steps are one word. The path visits the columns in the order of the word's bits: 0, 4,
// 8, ... 28, 1, 5, ... 31. So kernels compute `upper` and `lower` of a whole block with a few
// shifts. A block's scale byte is as in q4.h: 5 bits multiply the row's unit, 2 bits choose one of
// four centres, 1 bit is the sign.
//
// Tile: first the path's 64 bytes; bit g of byte 4r + k belongs to row r, column 4g + k. Then the
// rest: the nibbles of a byte belong to columns 4g + k and 16 + 4g + k; the third of three bits is
// stored like the path. Then the rows' scale bytes. A strip begins with the units of its
// 16 rows.
#pragma once
#include <array>
#include <cstring>

#include "quant/own/q4.h"

namespace chaski {

constexpr uint32_t upper_steps(uint32_t path) { return path ^ path << 1 ^ path << 3; }
constexpr uint32_t lower_steps(uint32_t path) { return path << 2; }

// Each column has kRest bits of rest. If kRest is 1, the first of every four columns of the path
// has one more bit, and the levels of kWideCodebook. F has kCodebook, kWideCodebook and kCentres.
template <class F, int kRest_>
struct Trellis {
  static constexpr int kRest = kRest_;
  static constexpr bool kWider = kRest == 1, kThird = kRest == 3;
  static constexpr int kTogether = kThird ? 2 : kRest;  // bits of the rest in a nibble
  static constexpr int kGguf = -1;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr bool kInTwoSteps = true;
  static constexpr bool kLooksUp = true;
  static constexpr DotKind kDot{.max = 63, .mins = true};

  using RowHeader = uint16_t;  // unit, bfloat16
  struct Block {
    uint8_t path[4];
    uint8_t rest[kRest][4];
    // Bits 0-4 scale, 5-6 centre, 7 sign. In a second byte, bits k and 4 + k are the additional
    // bits of columns k and 16 + k.
    uint8_t own[1 + kWider];
  };
  struct Tile {
    uint8_t path[64];
    uint8_t rest[kRest][64];
    uint8_t own[1 + kWider][16];
  };

  // The position of column 4g + k: the path's bit, and byte k of a plane of the rest, from bit
  // shift() on. The third of three bits is bit g of byte k of the last plane.
  static constexpr int step(int i) { return 8 * (i % 4) + i / 4; }
  [[gnu::always_inline]] static constexpr int plane(int g) { return g % 4 * kTogether / 4; }
  [[gnu::always_inline]] static constexpr int shift(int g) {
    return g % 4 * kTogether % 4 + 4 * (g / 4);
  }
  static constexpr bool is_wide(int i) { return kWider && i / 4 % 4 == 0; }
  static constexpr int kRestMask = (1 << kTogether) - 1;

  static constexpr uint32_t path(const Block& b) {
    return b.path[0] | uint32_t(b.path[1]) << 8 | uint32_t(b.path[2]) << 16 |
           uint32_t(b.path[3]) << 24;
  }
  static constexpr int rest(const Block& b, int i) {
    const int bits = b.rest[plane(i / 4)][i % 4] >> shift(i / 4) & kRestMask;
    if (kThird) return bits | (b.rest[kRest - 1][i % 4] >> (i / 4) & 1) << 2;
    return is_wide(i) ? bits | (b.own[kWider] >> (i / 16 * 4 + i % 4) & 1) << 1 : bits;
  }
  static constexpr void put_rest(Block& b, int i, int rest) {
    b.rest[plane(i / 4)][i % 4] |= uint8_t((rest & kRestMask) << shift(i / 4));
    if (kThird) b.rest[kRest - 1][i % 4] |= uint8_t((rest >> 2) << i / 4);
    if (is_wide(i)) b.own[kWider] |= uint8_t((rest >> 1) << (i / 16 * 4 + i % 4));
  }
  static constexpr int code(const Block& b, int i) {
    const int upper = upper_steps(path(b)) >> step(i) & 1,
              lower = lower_steps(path(b)) >> step(i) & 1;
    return rest(b, i) << 2 | upper << 1 | lower;
  }
  static constexpr int level(const Block& b, int i) {
    if constexpr (kRest == 4)
      return code(b, i);
    else if constexpr (kWider)
      return is_wide(i) ? entry_of<F::kWideCodebook>(code(b, i))
                        : entry_of<F::kCodebook>(code(b, i));
    else
      return entry_of<F::kCodebook>(code(b, i));
  }
  static constexpr float d(RowHeader unit, const Block& b) {
    const float d = f32_of_bf16(unit) * float(b.own[0] & 31);
    return b.own[0] & 128 ? -d : d;
  }
  static constexpr int centre(const Block& b) { return entry_of<F::kCentres>(b.own[0] >> 5 & 3); }

  static constexpr float at(RowHeader unit, const Block& b, int i) {
    return d(unit, b) * float(level(b, i) - centre(b));
  }
  static RowHeader header_of(const float* row, int64_t cols);
  // Searches for the scale and path of least squared error, weighted by the factors.
  static void encode(RowHeader unit, const float* x, const float* factors, Effort effort,
                     Block& block);
  // The same with feedback (gptq.h): column p of the path compensates errors(q) * shares[32 * q +
  // p]. All columns of a block are chosen at once, so there is no round().
  static void encode_fed(RowHeader unit, const float* x, const float* factors, const float* shares,
                         Block& block);
  // The unit of a row of random codes and scales, whose root mean square is F::kRms x 18 units.
  static RowHeader header_of_random(float rms) { return bf16_of_f32(rms / (F::kRms * 18)); }

  static void put(const Block& b, int r, Tile& t) {
    std::memcpy(t.path + 4 * r, b.path, 4);
    for (int h = 0; h < kRest; ++h) std::memcpy(t.rest[h] + 4 * r, b.rest[h], 4);
    for (int i = 0; i <= kWider; ++i) t.own[i][r] = b.own[i];
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    __builtin_memcpy(b.path, t.path + 4 * r, 4);
    for (int h = 0; h < kRest; ++h) __builtin_memcpy(b.rest[h], t.rest[h] + 4 * r, 4);
    for (int i = 0; i <= kWider; ++i) b.own[i] = t.own[i][r];
    return b;
  }
  static constexpr void row_panel(RowHeader unit, const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(level(b, i));
    p.d = d(unit, b);
    p.m = -(p.d * float(centre(b)));
  }
  template <class V>
  static void unpack(const RowHeader* units, const Tile& t, int, Panel<V>& p) {
    const auto path = V::load_bytes(t.path);
    const auto upper = V::xor_bytes(V::xor_bytes(path, V::shift_lanes(path, 1)),
                                    V::shift_lanes(path, 3)),
               lower = V::shift_lanes(path, 2);
    for (int g = 0; g < 4; ++g) {
      const auto rest = V::load_bytes(t.rest[plane(g)]);
      if constexpr (kRest == 4) {
        for (int half = 0; half < 2; ++half) {
          const int of = g + 4 * half;
          p.w[of] =
              V::or_bytes(V::or_bytes(V::move_bits(upper, of, 1, 1), V::move_bits(lower, of, 0, 1)),
                          V::move_bits(rest, shift(of), 2, kRestMask));
        }
      } else if constexpr (kThird) {
        // The nibble selects a pair of levels, `lower` one of the two.
        const auto third = V::load_bytes(t.rest[kRest - 1]);
        auto pair = V::or_bytes(V::move_bits(upper, g, 0, 0x11), V::move_bits(third, g, 3, 0x11));
        pair = V::or_bytes(pair, V::move_bits(rest, shift(g), 1, kRestMask * 0x11));
        p.w[g] = V::choose(lower, g, V::lookup_low(F::kOddLevels, pair),
                           V::lookup_low(F::kEvenLevels, pair));
        p.w[g + 4] = V::choose(lower, g + 4, V::lookup_high(F::kOddLevels, pair),
                               V::lookup_high(F::kEvenLevels, pair));
      } else {
        auto both = V::or_bytes(V::move_bits(upper, g, 1, 0x11), V::move_bits(lower, g, 0, 0x11));
        both = V::or_bytes(both, V::move_bits(rest, shift(g), 2, kRestMask * 0x11));
        const bool wide = kWider && g == 0;
        if (wide) both = V::or_bytes(both, wide_bits<V>(t));
        const uint8_t* codebook = wide ? F::kWideCodebook : F::kCodebook;
        p.w[g] = V::lookup_low(codebook, both);
        p.w[g + 4] = V::lookup_high(codebook, both);
      }
    }
    const auto s = V::load_u8(t.own[0]), choice = V::shift_right(s, 5);
    const auto size = V::mul(V::load_bf16(units), V::to_float(V::bit_and(s, V::set1_i32(31))));
    p.d = V::mul(size, V::pick(Q4::kSigns, choice));
    p.m = V::mul(size, V::pick(F::kMinusCentres, choice));
  }
  // Bits k and 4 + k of every row as bits 3 and 7 of its byte k.
  template <class V>
  [[gnu::always_inline]] static inline auto wide_bits(const Tile& t) {
    const auto bits = V::load_u8(t.own[kWider]);
    auto all = V::shift_left(V::bit_and(bits, V::set1_i32(0x11)), 3);
    for (int k = 1; k < 4; ++k)
      all = V::bit_or(all, V::shift_left(V::bit_and(bits, V::set1_i32(0x11 << k)), 7 * k + 3));
    return V::bytes(all);
  }
};

// 3.25 bits per weight and 16 more per row: 16 levels.
struct Q3 : Trellis<Q3, 2> {
  static constexpr Format kFormat = Format::q3;
  static constexpr std::string_view kName = "q3";
  static constexpr uint8_t kCodebook[16] = {0,  9,  14, 19, 22, 25, 28, 31,
                                            34, 36, 39, 42, 45, 49, 54, 63};
  static constexpr auto& kWideCodebook = kCodebook;
  static constexpr int kCentres[4] = {29, 32, 35, 38};
  alignas(32) static constexpr float kMinusCentres[8] = {-29, -32, -35, -38, 29, 32, 35, 38};

  // kReach: how far the codebook reaches, for a row's unit. Then the fractions of a block's reach
  // that the search tries as its scale, and the one that Effort::fast takes.
  static constexpr float kReach = 36;
  static constexpr float kParts[3] = {0.8f, 0.9f, 1};
  static constexpr float kFastPart = 0.95f;
  static constexpr float kRms = 17;  // of a level minus its centre
};
static_assert(sizeof(Q3::Block) == 13 && sizeof(Q3::Tile) == 16 * 13);

// 4.25 bits per weight and 16 more per row: 32 levels.
struct Q4T : Trellis<Q4T, 3> {
  static constexpr Format kFormat = Format::q4t;
  static constexpr std::string_view kName = "q4t";
  static constexpr uint8_t kCodebook[32] = {0,  5,  8,  11, 13, 15, 17, 19, 21, 22, 24,
                                            25, 27, 28, 29, 31, 32, 34, 35, 37, 38, 40,
                                            41, 43, 44, 46, 48, 50, 53, 55, 59, 63};
  static constexpr uint8_t kEvenLevels[16] = {0,  8,  13, 17, 21, 24, 27, 29,
                                              32, 35, 38, 41, 44, 48, 53, 59};
  static constexpr uint8_t kOddLevels[16] = {5,  11, 15, 19, 22, 25, 28, 31,
                                             34, 37, 40, 43, 46, 50, 55, 63};
  static constexpr auto& kWideCodebook = kCodebook;
  static constexpr int kCentres[4] = {29, 32, 35, 38};
  alignas(32) static constexpr float kMinusCentres[8] = {-29, -32, -35, -38, 29, 32, 35, 38};

  static constexpr float kReach = 36;
  static constexpr float kParts[3] = {0.82f, 0.91f, 1};
  static constexpr float kFastPart = 0.95f;
  static constexpr float kRms = 17;
};
static_assert(sizeof(Q4T::Block) == 17 && sizeof(Q4T::Tile) == 16 * 17);

// 5.25 bits per weight and 16 more per row: 64 levels that are equally far apart.
struct Q5 : Trellis<Q5, 4> {
  static constexpr Format kFormat = Format::q5;
  static constexpr std::string_view kName = "q5";
  static constexpr auto kCodebook = [] {
    std::array<uint8_t, 64> levels;
    for (size_t i = 0; i < levels.size(); ++i) levels[i] = uint8_t(i);
    return levels;
  }();
  static constexpr auto& kWideCodebook = kCodebook;
  static constexpr int kCentres[4] = {26, 30, 33, 37};
  alignas(32) static constexpr float kMinusCentres[8] = {-26, -30, -33, -37, 26, 30, 33, 37};

  static constexpr float kReach = 36;
  static constexpr float kParts[3] = {0.85f, 0.93f, 1};
  static constexpr float kFastPart = 0.97f;
  static constexpr float kRms = 19;
};
static_assert(sizeof(Q5::Block) == 21 && sizeof(Q5::Tile) == 16 * 21);

// 2.5 bits per weight and 16 more per row: 8 levels, 16 for a quarter of the columns.
struct Q2 : Trellis<Q2, 1> {
  static constexpr Format kFormat = Format::q2;
  static constexpr std::string_view kName = "q2";
  static constexpr uint8_t kCodebook[16] = {5, 15, 22, 27, 32, 38, 45, 60,
                                            5, 15, 22, 27, 32, 38, 45, 60};
  static constexpr uint8_t kWideCodebook[16] = {0,  8,  13, 17, 20, 23, 26, 28,
                                                31, 34, 37, 40, 43, 47, 52, 63};
  static constexpr int kCentres[4] = {24, 27, 30, 33};
  alignas(32) static constexpr float kMinusCentres[8] = {-24, -27, -30, -33, 24, 27, 30, 33};

  static constexpr float kReach = 36;
  static constexpr float kParts[3] = {0.7f, 0.85f, 1};
  static constexpr float kFastPart = 1;
  static constexpr float kRms = 17;
};
static_assert(sizeof(Q2::Block) == 10 && sizeof(Q2::Tile) == 16 * 10);

}  // namespace chaski
