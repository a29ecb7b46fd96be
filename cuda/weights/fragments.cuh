// Weight tiles as operands of the integer tensor-core product m16n8k32: what every block format
// says about itself on the device.
//
// A warp works on a pair of strips, 32 rows, and 32 columns at a time. Lane 4 g + t holds, of rows
// 4g..4g+3 of the 32, the columns 4t..4t+3 (word [i][0]) and 16+4t..16+4t+3 (word [i][1]). The
// tiles were made for it: in a 4-bit tile those are 16 neighbouring bytes, so that one 16-byte load
// of every lane brings the whole 32 x 32, from both strips, in whole sectors:
//
//        lane's bytes   64 t + 16 (g % 4) .. + 15   of the tile of strip g / 4
//        word i         row 4 (g % 4) + i
//        product 0      A rows g, g + 8 = words 0, 1        product 1      words 2, 3
//
// (which row of A is which row of the weight is a matter of names: what comes out is read with the
// same names). Codes of all formats fit a signed byte: unsigned ones end at 127.
//
// Weights<F>: kMixed     columns lie in the order 4t, 16+4t, 4t+1, 17+4t | 4t+2, 18+4t, 4t+3, 19+4t
//                        (codebooks looked up nibble by nibble)
//             Codes      what is loaded; words() turns it into bytes. Apart, so that many loads are
//                        under way before the first use.
//             Scales     likewise; panel() gives d, m, s, mins of the four rows, with the bits of
//                        the format's row_panel.
// Not for: float formats (float_dot.cuh, fma_dot.cuh).
#pragma once
#include "cuda/device/loads.cuh"
#include "quant/formats.h"

namespace chaski {

struct Lane {
  int g, t, quad;  // quad: which four rows of the lane's strip
  __device__ __forceinline__ Lane()
      : g(int(threadIdx.x) % 32 / 4), t(int(threadIdx.x) % 4), quad(g % 4) {}
};

// Scales of a lane's four rows for one block of 32 columns; quant/panel.h says what they mean.
struct RowScales {
  float d[4], m[4];
  int s[2][4], mins[2][4];
};

struct Words {
  uint32_t w[4][2] = {};  // [row][half]
};

template <class F>
struct Weights;

__device__ __forceinline__ void nibbles(uint32_t x, uint32_t (&w)[2]) {
  w[0] = x & 0x0f0f0f0f, w[1] = x >> 4 & 0x0f0f0f0f;
}

// Eight nibbles looked up in 16 bytes below 128, in the mixed order. Where a nibble is in the other
// half of the table, permute_bytes repeats a top bit, a zero: the halves are or-ed.
__device__ __forceinline__ void look_up(uint32_t x, const uint32_t (&table)[4], uint32_t (&w)[2]) {
  const uint32_t other = x ^ 0x88888888;
  w[0] = permute_bytes(table[0], table[1], x) | permute_bytes(table[2], table[3], other);
  w[1] =
      permute_bytes(table[0], table[1], x >> 16) | permute_bytes(table[2], table[3], other >> 16);
}
// Four nibbles in 16 signed bytes: both halves, and a mask of the nibbles that are 8 or more.
__device__ __forceinline__ uint32_t look_up_signed(uint32_t x, const uint32_t (&table)[4]) {
  const uint32_t low = x & 0x7777,
                 upper = (permute_bytes(0x80808080, 0, x & 0x8888) & 0x01010101) * 255;
  return (permute_bytes(table[0], table[1], low) & ~upper) |
         (permute_bytes(table[2], table[3], low) & upper);
}

constexpr uint32_t four_bytes(const auto* table, int i) {
  return uint8_t(table[i]) | uint32_t(uint8_t(table[i + 1])) << 8 |
         uint32_t(uint8_t(table[i + 2])) << 16 | uint32_t(uint8_t(table[i + 3])) << 24;
}
__device__ __forceinline__ void look_up_iq4(uint32_t x, uint32_t (&w)[2]) {
  constexpr uint32_t t0 = four_bytes(kIq4Codebook, 0), t1 = four_bytes(kIq4Codebook, 4),
                     t2 = four_bytes(kIq4Codebook, 8), t3 = four_bytes(kIq4Codebook, 12);
  const uint32_t table[4] = {t0, t1, t2, t3};
  w[0] = look_up_signed(x, table), w[1] = look_up_signed(x >> 16, table);
}

// One 16-byte load holds the four rows' words.
struct NibbleCodes {
  uint4 x;
};

// Tiles of 32 columns in nibbles.
struct NibbleTile {
  using Codes = NibbleCodes;
  static __device__ __forceinline__ Codes load(const auto& tile, int, const Lane& l) {
    return {load_once(tile.q + 64 * l.t + 16 * l.quad)};
  }
};

template <>
struct Weights<Q4_0> : NibbleTile {
  static constexpr bool kMixed = false;
  struct Scales {
    uint2 d;
  };
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) nibbles(word_of(c.x, i), w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Q4_0::Tile& tile, int,
                                                       int quad) {
    return {load8(tile.d + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) r.d[i] = half_at(s.d, i);
  }
};

// Scale and minimum of a block of 32 columns, f16 both.
struct HalfPairs {
  uint2 d, m;
};
__device__ __forceinline__ void half_panel(const HalfPairs& s, RowScales& r) {
#pragma unroll
  for (int i = 0; i < 4; ++i) r.d[i] = half_at(s.d, i), r.m[i] = half_at(s.m, i);
}

template <>
struct Weights<Q4_1> : NibbleTile {
  static constexpr bool kMixed = false;
  using Scales = HalfPairs;
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q4_0>::words(c, sub, l, w);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Q4_1::Tile& tile, int,
                                                       int quad) {
    return {load8(tile.d + 4 * quad), load8(tile.m + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
    half_panel(s, r);
  }
};

template <>
struct Weights<IQ4_NL> : NibbleTile {
  static constexpr bool kMixed = true;
  using Scales = Weights<Q4_0>::Scales;
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) look_up_iq4(word_of(c.x, i), w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const IQ4_NL::Tile& tile, int,
                                                       int quad) {
    return {load8(tile.d + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
    Weights<Q4_0>::panel(s, sub, r);
  }
};

template <>
struct Weights<Q4> : NibbleTile {
  static constexpr bool kMixed = true;
  struct Scales {
    uint2 unit;
    uint32_t scale;
  };
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
    constexpr uint32_t t0 = four_bytes(Q4::kCodebook, 0), t1 = four_bytes(Q4::kCodebook, 4),
                       t2 = four_bytes(Q4::kCodebook, 8), t3 = four_bytes(Q4::kCodebook, 12);
    const uint32_t table[4] = {t0, t1, t2, t3};
#pragma unroll
    for (int i = 0; i < 4; ++i) look_up(word_of(c.x, i), table, w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip, const Q4::Tile& tile, int,
                                                       int quad) {
    return {load8(static_cast<const Q4::RowHeader*>(strip) + 4 * quad),
            load4(tile.scale[0] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t b = byte_of(s.scale, i);
      const float size = __uint_as_float(half_word_of(s.unit, i) << 16) * float(int(b & 31));
      r.d[i] = __uint_as_float(__float_as_uint(size) ^ (b & 128) << 24);
      r.m[i] = -(r.d[i] * fmaf(float(int(b >> 5 & 3)), Q4::kCentreStep, Q4::kCentre));
    }
  }
};

template <>
struct Weights<Q4H> : NibbleTile {
  static constexpr bool kMixed = false;  // the halves have scales of their own
  struct Scales {
    uint2 unit;
    uint32_t scale[2];
  };
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q4>::words(c, sub, l, w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t mixed[2] = {w.w[i][0], w.w[i][1]};
      w.w[i][0] = permute_bytes(mixed[0], mixed[1], 0x6420),
      w.w[i][1] = permute_bytes(mixed[0], mixed[1], 0x7531);
    }
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip, const Q4H::Tile& tile,
                                                       int, int quad) {
    return {load8(static_cast<const Q4H::RowHeader*>(strip) + 4 * quad),
            {load4(tile.scale[0] + 4 * quad), load4(tile.scale[1] + 4 * quad)}};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.d[i] = r.m[i] = __uint_as_float(half_word_of(s.unit, i) << 16);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t b = byte_of(s.scale[h], i);
        r.s[h][i] = b & 128 ? -int(b & 31) : int(b & 31);
        r.mins[h][i] = -r.s[h][i] * (int(Q4::kCentre) + int(b >> 5 & 3) * int(Q4::kCentreStep));
      }
    }
  }
};

template <class F>
struct WeightsQ8 {
  static constexpr bool kMixed = false;
  struct Codes {
    uint4 x[2];
  };
  using Scales = std::conditional_t<std::is_same_v<F, Q8>, uint2, uint4>;
  static __device__ __forceinline__ Codes load(const typename F::Tile& tile, int, const Lane& l) {
    return {{load_once(tile.q + 64 * l.t + 16 * l.quad),
             load_once(tile.q + 64 * (l.t + 4) + 16 * l.quad)}};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w.w[i][0] = word_of(c.x[0], i), w.w[i][1] = word_of(c.x[1], i);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const typename F::Tile& tile,
                                                       int, int quad) {
    return *reinterpret_cast<const Scales*>(tile.d + 4 * quad);
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if constexpr (std::is_same_v<F, Q8>)
        r.d[i] = half_at(s, i);
      else
        r.d[i] = __uint_as_float(word_of(s, i));
  }
};
template <>
struct Weights<Q8> : WeightsQ8<Q8> {};
template <>
struct Weights<Q8F> : WeightsQ8<Q8F> {};

// Q4_K and Q5_K: scale and minimum of 6 bits in planes (quant/gguf/q4_k.h).
struct SixBitScales {
  uint2 d, dmin;
  uint32_t low, high;
};
template <class Tile>
__device__ __forceinline__ SixBitScales load_six_bit(const Tile& tile, int sub, int quad) {
  return {load8(tile.d + 4 * quad), load8(tile.dmin + 4 * quad),
          load4(tile.planes.low[sub] + 4 * quad), load4(tile.planes.high[sub / 2] + 4 * quad)};
}
__device__ __forceinline__ void six_bit_panel(const SixBitScales& s, int sub, RowScales& r) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = byte_of(s.low, i), high = byte_of(s.high, i) >> 4 * (sub % 2);
    r.d[i] = half_at(s.d, i) * float(int((low & 15) | (high & 3) << 4));
    r.m[i] = -(half_at(s.dmin, i) * float(int(low >> 4 | (high >> 2 & 3) << 4)));
  }
}

template <>
struct Weights<Q4_K> {
  static constexpr bool kMixed = false;
  using Codes = NibbleCodes;
  using Scales = SixBitScales;
  static __device__ __forceinline__ Codes load(const Q4_K::Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.q[sub] + 64 * l.t + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) nibbles(word_of(c.x, i), w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Q4_K::Tile& tile, int sub,
                                                       int quad) {
    return load_six_bit(tile, sub, quad);
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
    six_bit_panel(s, sub, r);
  }
};

struct TwoPlanes {
  uint4 low, high;
};
// Nibbles, and a plane of fifth bits: bit g of byte 4r + k belongs to row r, column 4g + k.
__device__ __forceinline__ void five_bits(const TwoPlanes& c, const Lane& l, Words& w) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // bit of columns 4t.., and four above it that of 16+4t..
    const uint32_t fifth = word_of(c.high, i) >> l.t;
    nibbles(word_of(c.low, i), w.w[i]);
    w.w[i][0] |= (fifth & 0x01010101) << 4;
    w.w[i][1] |= fifth & 0x10101010;
  }
}

template <>
struct Weights<Q5_K> {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  using Scales = SixBitScales;
  static __device__ __forceinline__ Codes load(const Q5_K::Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.q[sub] + 64 * l.t + 16 * l.quad),
            *reinterpret_cast<const uint4*>(tile.high[sub] + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane& l, Words& w) {
    five_bits(c, l, w);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Q5_K::Tile& tile, int sub,
                                                       int quad) {
    return load_six_bit(tile, sub, quad);
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
    six_bit_panel(s, sub, r);
  }
};

struct FiveBitTile {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  static __device__ __forceinline__ Codes load(const TileFives& tile, int, const Lane& l) {
    return {load_once(tile.q + 64 * l.t + 16 * l.quad),
            *reinterpret_cast<const uint4*>(tile.high + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane& l, Words& w) {
    five_bits(c, l, w);
  }
};

template <>
struct Weights<Q5_0> : FiveBitTile {
  using Scales = Weights<Q4_0>::Scales;
  static __device__ __forceinline__ Scales load_scales(const void*, const Q5_0::Tile& tile, int,
                                                       int quad) {
    return {load8(tile.d + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
    Weights<Q4_0>::panel(s, sub, r);
  }
};

template <>
struct Weights<Q5_1> : FiveBitTile {
  using Scales = HalfPairs;
  static __device__ __forceinline__ Scales load_scales(const void*, const Q5_1::Tile& tile, int,
                                                       int quad) {
    return {load8(tile.d + 4 * quad), load8(tile.m + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
    half_panel(s, r);
  }
};

// Planes of bit pairs (quant/gguf/two_bits.h): the four lanes of a row share its bytes.
__device__ __forceinline__ TwoPlanes load_two_bits(const TileTwoBits& tile, int sub,
                                                   const Lane& l) {
  return {load_once(tile.q[sub][0] + 16 * l.quad), load_once(tile.q[sub][1] + 16 * l.quad)};
}

template <>
struct Weights<Q2_K> {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  struct Scales {
    uint2 d, dmin;
    uint32_t s[2];
  };
  static __device__ __forceinline__ Codes load(const Q2_K::Tile& tile, int sub, const Lane& l) {
    return load_two_bits(tile, sub, l);
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane& l, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w.w[i][0] = word_of(c.low, i) >> 2 * l.t & 0x03030303;
      w.w[i][1] = word_of(c.high, i) >> 2 * l.t & 0x03030303;
    }
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Q2_K::Tile& tile, int sub,
                                                       int quad) {
    return {load8(tile.d + 4 * quad),
            load8(tile.dmin + 4 * quad),
            {load4(tile.scale[2 * sub] + 4 * quad), load4(tile.scale[2 * sub + 1] + 4 * quad)}};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.d[i] = half_at(s.d, i), r.m[i] = -half_at(s.dmin, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t both = byte_of(s.s[h], i);
        r.s[h][i] = int(both & 15), r.mins[h][i] = int(both >> 4);
      }
    }
  }
};

template <>
struct Weights<Q3_K> {
  static constexpr bool kMixed = false;
  struct Codes {
    TwoPlanes two;
    uint4 third;
  };
  struct Scales {
    uint2 d;
    uint32_t low[2], high[2];
  };
  static __device__ __forceinline__ Codes load(const Q3_K::Tile& tile, int sub, const Lane& l) {
    return {load_two_bits(tile, sub, l), load_once(tile.high[sub] + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q2_K>::words(c.two, sub, l, w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // bit of columns 4t.., and four above it that of 16+4t..
      const uint32_t third = word_of(c.third, i) >> l.t;
      w.w[i][0] |= (third & 0x01010101) << 2;
      w.w[i][1] |= (third & 0x10101010) >> 2;
    }
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Q3_K::Tile& tile, int sub,
                                                       int quad) {
    Scales s{load8(tile.d + 4 * quad), {}, {}};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      s.low[h] = load4(tile.scale[(2 * sub + h) % 8] + 4 * quad);
      s.high[h] = load4(tile.scale[8 + (2 * sub + h) % 4] + 4 * quad);
    }
    return s;
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.d[i] = half_at(s.d, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t low = byte_of(s.low[h], i) >> 4 * (sub / 4) & 15,
                       high = byte_of(s.high[h], i) >> 2 * (sub / 2) & 3;
        r.s[h][i] = int(low | high << 4) - 32;
      }
    }
  }
};

template <>
struct Weights<TQ2_0> {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  using Scales = Weights<Q4_0>::Scales;
  static __device__ __forceinline__ Codes load(const TQ2_0::Tile& tile, int sub, const Lane& l) {
    return load_two_bits(tile, sub, l);
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q2_K>::words(c, sub, l, w);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const TQ2_0::Tile& tile, int,
                                                       int quad) {
    return {load8(tile.d + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
    Weights<Q4_0>::panel(s, sub, r);
  }
};

__device__ __forceinline__ void look_up_fp4(uint32_t x, uint32_t (&w)[2]) {
  constexpr uint32_t t0 = four_bytes(kFp4Codebook, 0), t1 = four_bytes(kFp4Codebook, 4),
                     t2 = four_bytes(kFp4Codebook, 8), t3 = four_bytes(kFp4Codebook, 12);
  const uint32_t table[4] = {t0, t1, t2, t3};
  look_up(x, table, w);
}

template <>
struct Weights<MXFP4> : NibbleTile {
  static constexpr bool kMixed = true;
  struct Scales {
    uint32_t e;
  };
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) look_up_fp4(word_of(c.x, i), w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const MXFP4::Tile& tile, int,
                                                       int quad) {
    return {load4(tile.e + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t e = byte_of(s.e, i);
      r.d[i] = (e ? __uint_as_float(e << 23) : 0x1p-127f) * 0.5f;
    }
  }
};

template <>
struct Weights<NVFP4> {
  static constexpr bool kMixed = false;  // the halves have scales of their own
  using Codes = NibbleCodes;
  struct Scales {
    uint32_t scale[2];
  };
  static __device__ __forceinline__ Codes load(const NVFP4::Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.q[sub % 2] + 64 * l.t + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t mixed[2];
      look_up_fp4(word_of(c.x, i), mixed);
      w.w[i][0] = permute_bytes(mixed[0], mixed[1], 0x6420),
      w.w[i][1] = permute_bytes(mixed[0], mixed[1], 0x7531);
    }
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const NVFP4::Tile& tile,
                                                       int sub, int quad) {
    return {{load4(tile.scale[2 * (sub % 2)] + 4 * quad),
             load4(tile.scale[2 * (sub % 2) + 1] + 4 * quad)}};
  }
  // Seven bits of an e4m3 in the place of a float's exponent and mantissa are 2^-120 of its value.
  static __device__ __forceinline__ float scale_of(uint32_t byte) {
    const uint32_t size = byte & 127;
    return size == 127 ? NAN : __uint_as_float(size << 20) * 0x1p119f;
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      r.d[i] = scale_of(byte_of(s.scale[0], i)), r.m[i] = scale_of(byte_of(s.scale[1], i));
  }
};

template <>
struct Weights<NVFP4S> : NibbleTile {
  static constexpr bool kMixed = false;
  struct Scales {
    Weights<NVFP4>::Scales blocks;
    uint4 row;
  };
  static __device__ __forceinline__ Codes load(const NVFP4S::Tile& tile, int sub, const Lane& l) {
    return Weights<NVFP4>::load(tile, sub, l);
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<NVFP4>::words(c, sub, l, w);
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip, const NVFP4S::Tile& tile,
                                                       int sub, int quad) {
    return {Weights<NVFP4>::load_scales(strip, tile, sub, quad),
            *(static_cast<const uint4*>(strip) + quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
    Weights<NVFP4>::panel(s.blocks, sub, r);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float row = __uint_as_float(word_of(s.row, i));
      r.d[i] *= row, r.m[i] *= row;
    }
  }
};

// IQ1 to IQ3: tiles have codes in place of indices into the grids (quant/gguf/iq2.h, iq3.h), so
// what is looked up is a codebook of 16 bytes, four immediate words; no constant or shared memory.
template <class F>
struct WeightsIq3 {
  static constexpr bool kMixed = true;
  using Codes = NibbleCodes;
  struct Scales {
    uint2 d;
    uint32_t scale;
  };
  static __device__ __forceinline__ Codes load(const Iq3Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.q[sub] + 64 * l.t + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
    constexpr uint32_t t0 = four_bytes(F::kCodebook, 0), t1 = four_bytes(F::kCodebook, 4),
                       t2 = four_bytes(F::kCodebook, 8), t3 = four_bytes(F::kCodebook, 12);
    const uint32_t table[4] = {t0, t1, t2, t3};
#pragma unroll
    for (int i = 0; i < 4; ++i) look_up(word_of(c.x, i), table, w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Iq3Tile& tile, int sub,
                                                       int quad) {
    return {load8(tile.d + 4 * quad), load4(tile.scale[sub / 2] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int scale = int(byte_of(s.scale, i) >> 4 * (sub % 2) & 15);
      r.d[i] = half_at(s.d, i) * F::kUnit * float(2 * scale + 1);
    }
  }
};
template <>
struct Weights<IQ3_S> : WeightsIq3<IQ3_S> {};
template <>
struct Weights<IQ3_XXS> : WeightsIq3<IQ3_XXS> {};

// Four bytes below 8 looked up in eight bytes.
__device__ __forceinline__ uint32_t look_up_bytes(uint32_t x, uint32_t low, uint32_t high) {
  return permute_bytes(low, high, permute_bytes(x | x >> 4, 0, 0x4420));
}

template <class F>
struct WeightsIq2 {
  static constexpr bool kMixed = false;
  using Codes = Weights<Q3_K>::Codes;
  struct Scales {
    uint2 d;
    uint32_t scale;
  };
  static __device__ __forceinline__ Codes load(const ThreeBitTile& tile, int sub, const Lane& l) {
    return {load_two_bits(tile, sub, l), load_once(tile.high[sub] + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    constexpr uint32_t low = four_bytes(F::kCodebook, 0), high = four_bytes(F::kCodebook, 4);
    Weights<Q3_K>::words(c, sub, l, w);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      for (int h = 0; h < 2; ++h) w.w[i][h] = look_up_bytes(w.w[i][h], low, high);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const ThreeBitTile& tile,
                                                       int sub, int quad) {
    return {load8(tile.d + 4 * quad), load4(tile.scale[sub] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int both = int(byte_of(s.scale, i));
      r.d[i] = half_at(s.d, i) * 0.125f;
      r.s[0][i] = 2 * (both & 15) + 1, r.s[1][i] = 2 * (both >> 4) + 1;
    }
  }
};
template <>
struct Weights<IQ2_S> : WeightsIq2<IQ2_S> {};
template <>
struct Weights<IQ1_M> : WeightsIq2<IQ1_M> {};

template <>
struct Weights<IQ1_S> {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  using Scales = WeightsIq3<IQ3_S>::Scales;
  static __device__ __forceinline__ Codes load(const IQ1_S::Tile& tile, int sub, const Lane& l) {
    return load_two_bits(tile, sub, l);
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q2_K>::words(c, sub, l, w);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const IQ1_S::Tile& tile,
                                                       int sub, int quad) {
    return {load8(tile.d + 4 * quad), load4(tile.scale[sub / 2] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int both = int(byte_of(s.scale, i) >> 4 * (sub % 2) & 15);
      r.d[i] = half_at(s.d, i) * float(2 * (both & 7) + 1);
      r.m[i] = r.d[i] * (both & 8 ? -1.125f : -0.875f);
    }
  }
};

template <>
struct Weights<Q6_K> {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  struct Scales {
    uint2 d;
    uint32_t s[2];
  };
  static __device__ __forceinline__ Codes load(const Q6_K::Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.low[sub] + 64 * l.t + 16 * l.quad),
            load_once(tile.high[sub] + 64 * (l.t % 2) + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane& l, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // pair of columns 4t.., and four bits above it that of 16+4t..
      const uint32_t pairs = word_of(c.high, i) >> 2 * (l.t / 2);
      nibbles(word_of(c.low, i), w.w[i]);
      w.w[i][0] |= (pairs & 0x03030303) << 4;
      w.w[i][1] |= pairs & 0x30303030;
    }
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const Q6_K::Tile& tile, int sub,
                                                       int quad) {
    return {load8(tile.d + 4 * quad),
            {load4(tile.scale[2 * sub] + 4 * quad), load4(tile.scale[2 * sub + 1] + 4 * quad)}};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.d[i] = half_at(s.d, i);
      for (int h = 0; h < 2; ++h) r.s[h][i] = int8_t(byte_of(s.s[h], i));
    }
  }
};

template <>
struct Weights<IQ4_XS> {
  static constexpr bool kMixed = true;
  using Codes = NibbleCodes;
  struct Scales {
    uint2 d;
    uint32_t low, high;
  };
  static __device__ __forceinline__ Codes load(const IQ4_XS::Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.q[sub] + 64 * l.t + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) look_up_iq4(word_of(c.x, i), w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const IQ4_XS::Tile& tile,
                                                       int sub, int quad) {
    return {load8(tile.d + 4 * quad), load4(tile.low[sub / 2] + 4 * quad),
            load4(tile.high[sub / 4] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = byte_of(s.low, i) >> 4 * (sub % 2) & 15,
                     high = byte_of(s.high, i) >> 2 * (sub % 4) & 3;
      r.d[i] = half_at(s.d, i) * float(int(low | high << 4) - 32);
    }
  }
};

template <>
struct Weights<Q6> {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  struct Scales {
    uint2 unit;
    uint32_t scale;
  };
  static __device__ __forceinline__ Codes load(const Q6::Tile& tile, int, const Lane& l) {
    return {load_once(tile.q + 64 * l.t + 16 * l.quad),
            load_once(tile.high[l.t % 2] + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q6_K>::words(c, sub, l, w);
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip, const Q6::Tile& tile, int,
                                                       int quad) {
    return {load8(static_cast<const Q6::RowHeader*>(strip) + 4 * quad),
            load4(tile.scale + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t b = byte_of(s.scale, i);
      r.d[i] = float_of_bf16(half_word_of(s.unit, i)) * float(int(b & 63));
      r.m[i] = -(r.d[i] * float(entry_of<Q6::kCentres>(int(b >> 6))));
    }
  }
};

// A row's word of the path, its word of the plane that has the rest of the lane's columns, its word
// of the last plane, and its last byte. Columns of the first lane of four may have a codebook of
// their own.
template <class F>
struct TrellisWeights {
  static constexpr bool kMixed = F::kRest < 4;
  struct Codes {
    uint4 path, rest, third;
    uint32_t last;
  };
  using Scales = Weights<Q4>::Scales;
  static __device__ __forceinline__ Codes load(const typename F::Tile& tile, int, const Lane& l) {
    return {load_once(tile.path + 16 * l.quad), load_once(tile.rest[F::plane(l.t)] + 16 * l.quad),
            F::kThird ? load_once(tile.rest[F::kRest - 1] + 16 * l.quad) : uint4{},
            load4(tile.own[F::kWider] + 4 * l.quad)};
  }
  template <const auto& kCodebook>
  static __device__ __forceinline__ void look_up_in(uint32_t x, uint32_t (&w)[2]) {
    constexpr uint32_t t0 = four_bytes(kCodebook, 0), t1 = four_bytes(kCodebook, 4),
                       t2 = four_bytes(kCodebook, 8), t3 = four_bytes(kCodebook, 12);
    const uint32_t table[4] = {t0, t1, t2, t3};
    look_up(x, table, w);
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane& l, Words& w) {
    constexpr uint32_t kBits = 0x11111111, kOnes = 0x01010101;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t path = word_of(c.path, i), upper = upper_steps(path) >> l.t,
                     lower = lower_steps(path) >> l.t, rest = word_of(c.rest, i);
      if constexpr (F::kRest == 4) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          w.w[i][half] = (rest >> 4 * half & 0x0f0f0f0f) << 2 | (upper >> 4 * half & kOnes) << 1 |
                         (lower >> 4 * half & kOnes);
      } else if constexpr (F::kThird) {
        const uint32_t pair = (word_of(c.third, i) >> l.t & kBits) << 3 |
                              (rest >> F::shift(l.t) & kBits * F::kRestMask) << 1 | (upper & kBits);
        uint32_t even[2], odd[2];
        look_up_in<F::kEvenLevels>(pair, even);
        look_up_in<F::kOddLevels>(pair, odd);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t mask = permute_bytes(0xff00, 0, (lower & kBits) >> 16 * half);
          w.w[i][half] = (odd[half] & mask) | (even[half] & ~mask);
        }
      } else {
        const uint32_t x = (rest >> F::shift(l.t) & kBits * F::kRestMask) << 2 |
                           (upper & kBits) << 1 | (lower & kBits);
        if (F::kWider && l.t == 0) {
          const uint32_t b = byte_of(c.last, i);
          look_up_in<F::kWideCodebook>(
              x | (b & 0x11) << 3 | (b & 0x22) << 10 | (b & 0x44) << 17 | (b & 0x88) << 24, w.w[i]);
        } else {
          look_up_in<F::kCodebook>(x, w.w[i]);
        }
      }
    }
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip,
                                                       const typename F::Tile& tile, int,
                                                       int quad) {
    return {load8(static_cast<const typename F::RowHeader*>(strip) + 4 * quad),
            load4(tile.own[0] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t b = byte_of(s.scale, i);
      const float size = float_of_bf16(half_word_of(s.unit, i)) * float(int(b & 31));
      r.d[i] = __uint_as_float(__float_as_uint(size) ^ (b & 128) << 24);
      r.m[i] = -(r.d[i] * float(entry_of<F::kCentres>(int(b >> 5 & 3))));
    }
  }
};
template <>
struct Weights<Q3> : TrellisWeights<Q3> {};
template <>
struct Weights<Q2> : TrellisWeights<Q2> {};
template <>
struct Weights<Q4T> : TrellisWeights<Q4T> {};
template <>
struct Weights<Q5> : TrellisWeights<Q5> {};

}  // namespace chaski
