// Weights<F> of GGUF's K-quants and of its ternary tq2_0: blocks of 256 columns, in which scales
// are codes themselves. fragments.cuh describes the interface.
#pragma once
#include "cuda/weights/legacy.cuh"

namespace chaski {

// Scale and minimum of Q4_K and Q5_K: 6 bits each, stored in planes (quant/gguf/q4_k.h).
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

// Planes of bit pairs (quant/gguf/two_bits.h). The four lanes of a row share its bytes.
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
      // Bits 0 of the bytes belong to columns 4t.., bits 4 to columns 16+4t...
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
      // Bits 0 and 1 of the bytes belong to columns 4t.., bits 4 and 5 to columns 16+4t...
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

}  // namespace chaski
