// Keys and values of a page (kv_layout.h) as floats in registers, 16 bytes a load: what attention needs to know of a KV format.
//
//   Keys<F>     a K tile's rows are positions. A warp reads units of kChannels channels: lane = kLanes phase + part takes units
//               phase + kPhases k and the positions kPositions part .. of them; whole tiles go by in whole sectors.
//   Values<F>   a V row is a position; a unit is kChannels neighbouring channels.
#pragma once
#include "cuda/loads.cuh"
#include "ggml-like-tensor/kv_layout.h"
#include "quant/floats.h"
#include "quant/q8.h"

namespace chaski {

// Item i of 16 bytes of f32, f16 or f8.
template <class F>
__device__ __forceinline__ float item_of(const uint4& x, int i) {
  if (F::kFormat == Format::f32) return __uint_as_float(word_of(x, i));
  if (F::kFormat == Format::f16) return float_of_f16(half_word_of(x, i));
  return f32_of_f8(uint8_t(byte_of(word_of(x, i / 4), i % 4)));
}

template <class F>
struct Keys {
  static constexpr int kChannels = 1, kPositions = 16 / sizeof(typename F::Block), kLanes = kPage / kPositions, kPhases = 32 / kLanes;
  using Raw = uint4;
  static __device__ __forceinline__ Raw load(const std::byte* tile, int unit, int part) {
    return load16(tile + (unit * kPage + kPositions * part) * sizeof(typename F::Block));
  }
  static __device__ __forceinline__ void values(const Raw& x, float (&k)[kChannels][kPositions]) {
#pragma unroll
    for (int p = 0; p < kPositions; ++p) k[0][p] = item_of<F>(x, p);
  }
};

template <>
struct Keys<Q8> {
  static constexpr int kChannels = 4, kPositions = 4, kLanes = kPage / kPositions, kPhases = 32 / kLanes;
  struct Raw {
    uint4 q;
    uint2 d;
  };
  static __device__ __forceinline__ Raw load(const std::byte* tile, int unit, int part) {
    const auto& block = reinterpret_cast<const Q8::Tile*>(tile)[unit / kPhases];
    return {load16(block.q + 64 * (unit % kPhases) + 16 * part), load8(block.d + 4 * part)};
  }
  static __device__ __forceinline__ void values(const Raw& x, float (&k)[kChannels][kPositions]) {
#pragma unroll
    for (int p = 0; p < kPositions; ++p)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) k[c][p] = half_at(x.d, p) * float(int8_t(byte_of(word_of(x.q, p), c)));
  }
};

template <class F>
struct Values {
  static constexpr int kChannels = 16 / sizeof(typename F::Block);
  using Raw = uint4;
  static __device__ __forceinline__ Raw load(const std::byte* rows, int slot, int unit, int v_cols) {
    return load16(rows + (slot * v_cols + kChannels * unit) * sizeof(typename F::Block));
  }
  static __device__ __forceinline__ void values(const Raw& x, float (&v)[kChannels]) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) v[c] = item_of<F>(x, c);
  }
};

template <>
struct Values<Q8> {
  static constexpr int kChannels = 16;
  struct Raw {
    uint4 q;
    uint32_t d;
  };
  static __device__ __forceinline__ Raw load(const std::byte* rows, int slot, int unit, int v_cols) {
    const auto* scales = reinterpret_cast<const uint16_t*>(rows + kPage * v_cols);
    return {load16(rows + slot * v_cols + kChannels * unit), scales[slot * (v_cols / 32) + unit / 2]};
  }
  static __device__ __forceinline__ void values(const Raw& x, float (&v)[kChannels]) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) v[c] = float_of_f16(x.d) * float(int8_t(byte_of(word_of(x.q, c / 4), c % 4)));
  }
};

}  // namespace chaski
