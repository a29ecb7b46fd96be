// Weights<F> of GGUF's blocks of 32 columns: q4_0, q4_1, q5_0, q5_1 and q8_0, and q8 with an f32
// scale. fragments.cuh describes the interface.
#pragma once
#include "cuda/weights/fragments.cuh"

namespace chaski {

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

// An f16 scale and an f16 minimum for a block of 32 columns.
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

}  // namespace chaski
