// Weights<F> of 4-bit floats under a scale: MXFP4, NVFP4 and NVFP4 with a scale for each row
// (quant/packed/fp4.h). fragments.cuh describes the interface.
#pragma once
#include "cuda/weights/fragments.cuh"

namespace chaski {

inline constexpr auto kFp4Table = std::to_array(kFp4Codebook);

template <>
struct Weights<MXFP4> : NibbleTile, NibbleLookUp<kFp4Table> {
  struct Scales {
    uint32_t e;
  };
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
  using Kept = Weights<MXFP4>::Kept;
  static __device__ __forceinline__ void words(const Codes& c, int sub, const auto& l, Words& w) {
    Weights<MXFP4>::words(c, sub, l, w);
    unmix(w);
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const NVFP4::Tile& tile,
                                                       int sub, int quad) {
    return {{load4(tile.scale[2 * (sub % 2)] + 4 * quad),
             load4(tile.scale[2 * (sub % 2) + 1] + 4 * quad)}};
  }
  // Placed at a float's exponent and mantissa, the low seven bits of an e4m3 give 2^-120 of its
  // value.
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
  using Kept = Weights<NVFP4>::Kept;
  static __device__ __forceinline__ void words(const Codes& c, int sub, const auto& l, Words& w) {
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

}  // namespace chaski
