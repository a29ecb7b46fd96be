// Weights<F> of GGUF's IQ formats. IQ4 looks nibbles up in a codebook of signed bytes. Files of
// IQ1 to IQ3 have indices into grids; their tiles have short codes instead (quant/gguf/iq2.h,
// iq3.h). A codebook of at most 16 bytes decodes them. It fits into four immediate words, so it
// needs no constant or shared memory.
// fragments.cuh describes the interface.
#pragma once
#include "cuda/weights/k_quants.cuh"

namespace chaski {

inline constexpr auto kIq4Table = [] {
  auto table = std::to_array(kIq4Codebook);
  for (size_t i = 8; i < 16; ++i) ++table[i];
  return table;
}();

template <>
struct Weights<IQ4_NL> : NibbleTile, NibbleLookUp<kIq4Table, true> {
  using Scales = Weights<Q4_0>::Scales;
  static __device__ __forceinline__ Scales load_scales(const void*, const IQ4_NL::Tile& tile, int,
                                                       int quad) {
    return {load8(tile.d + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
    Weights<Q4_0>::panel(s, sub, r);
  }
};

template <>
struct Weights<IQ4_XS> : NibbleLookUp<kIq4Table, true> {
  using Codes = NibbleCodes;
  struct Scales {
    uint2 d;
    uint32_t low, high;
  };
  static __device__ __forceinline__ Codes load(const IQ4_XS::Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.q[sub] + 64 * l.t + 16 * l.quad)};
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

template <class F>
struct WeightsIq3 {
  using Codes = NibbleCodes;
  struct Scales {
    uint2 d;
    uint32_t scale;
  };
  static __device__ __forceinline__ Codes load(const Iq3Tile& tile, int sub, const Lane& l) {
    return {load_once(tile.q[sub] + 64 * l.t + 16 * l.quad)};
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
// nvcc's host pass takes no codebook that depends on a parameter, so each names its own.
template <>
struct Weights<IQ3_S> : WeightsIq3<IQ3_S>, NibbleLookUp<IQ3_S::kCodebook> {};
template <>
struct Weights<IQ3_XXS> : WeightsIq3<IQ3_XXS>, NibbleLookUp<IQ3_XXS::kCodebook> {};

// Looks four bytes below 8 up in a table of eight bytes.
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
    constexpr uint32_t low = kFourBytes<F::kCodebook, 0>, high = kFourBytes<F::kCodebook, 4>;
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

}  // namespace chaski
