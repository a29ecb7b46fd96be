// Weights<F> (fragments.cuh) for the formats whose tiles keep 16 GGUF blocks side by side
// (quant/row_tile.h). Rows lie a block apart and blocks are only 2-byte aligned, so a lane gathers
// its words in small loads: exact, and slower than a tile made for it.
#pragma once
#include "cuda/fragments.cuh"

namespace chaski {

// `Self` gives row(block, sub, t, w): the two words of one row; scales(block, sub, i, r): the
// scales of the lane's row i.
template <class Self, class F, bool kIsMixed = false>
struct RowWeights {
  static constexpr bool kMixed = kIsMixed;
  using Codes = Words;
  struct Scales {
    const typename F::Block* rows;  // the lane's four
  };
  static __device__ __forceinline__ Codes load(const typename F::Tile& tile, int sub,
                                               const Lane& l) {
    Words w;
#pragma unroll
    for (int i = 0; i < 4; ++i) Self::row(tile.rows[4 * l.quad + i], sub, l.t, w.w[i]);
    return w;
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
    w = c;
  }
  static __device__ __forceinline__ Scales load_scales(const void*, const typename F::Tile& tile,
                                                       int, int quad) {
    return {tile.rows + 4 * quad};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int sub, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) Self::scales(s.rows[i], sub, i, r);
  }
};

template <>
struct Weights<Q4_1> : RowWeights<Weights<Q4_1>, Q4_1> {
  static __device__ __forceinline__ void row(const Q4_1Block& b, int, int t, uint32_t (&w)[2]) {
    nibbles(load4_even(b.q + 4 * t), w);
  }
  static __device__ __forceinline__ void scales(const Q4_1Block& b, int, int i, RowScales& r) {
    r.d[i] = float_of_f16(b.d), r.m[i] = float_of_f16(b.m);
  }
};

// Q5_0, Q5_1: bit c of the four bytes `high` is column c's fifth; four bits spread to bit 4 of four
// bytes.
template <class Block>
__device__ __forceinline__ void five_bits(const Block& b, int t, uint32_t (&w)[2]) {
  const uint32_t high = load4_even(b.high) >> 4 * t;
  nibbles(load4_even(b.q + 4 * t), w);
  w[0] |= ((high & 15) * 0x00204081 & 0x01010101) << 4;
  w[1] |= ((high >> 16 & 15) * 0x00204081 & 0x01010101) << 4;
}

template <>
struct Weights<Q5_0> : RowWeights<Weights<Q5_0>, Q5_0> {
  static __device__ __forceinline__ void row(const Q5_0Block& b, int, int t, uint32_t (&w)[2]) {
    five_bits(b, t, w);
  }
  static __device__ __forceinline__ void scales(const Q5_0Block& b, int, int i, RowScales& r) {
    r.d[i] = float_of_f16(b.d);
  }
};

template <>
struct Weights<Q5_1> : RowWeights<Weights<Q5_1>, Q5_1> {
  static __device__ __forceinline__ void row(const Q5_1Block& b, int, int t, uint32_t (&w)[2]) {
    five_bits(b, t, w);
  }
  static __device__ __forceinline__ void scales(const Q5_1Block& b, int, int i, RowScales& r) {
    r.d[i] = float_of_f16(b.d), r.m[i] = float_of_f16(b.m);
  }
};

template <>
struct Weights<IQ4_NL> : RowWeights<Weights<IQ4_NL>, IQ4_NL, true> {
  static __device__ __forceinline__ void row(const IQ4_NLBlock& b, int, int t, uint32_t (&w)[2]) {
    look_up_iq4(load4_even(b.q + 4 * t), w);
  }
  static __device__ __forceinline__ void scales(const IQ4_NLBlock& b, int, int i, RowScales& r) {
    r.d[i] = float_of_f16(b.d);
  }
};

template <>
struct Weights<Q2_K> : RowWeights<Weights<Q2_K>, Q2_K> {
  static __device__ __forceinline__ void row(const Q2_KBlock& b, int sub, int t, uint32_t (&w)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      w[h] = load4_even(b.q + 32 * (sub / 4) + 16 * h + 4 * t) >> 2 * (sub % 4) & 0x03030303;
  }
  static __device__ __forceinline__ void scales(const Q2_KBlock& b, int sub, int i, RowScales& r) {
    r.d[i] = float_of_f16(b.d), r.m[i] = -float_of_f16(b.dmin);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      r.s[h][i] = b.scale[2 * sub + h] & 15, r.mins[h][i] = b.scale[2 * sub + h] >> 4;
  }
};

template <>
struct Weights<Q3_K> : RowWeights<Weights<Q3_K>, Q3_K> {
  static __device__ __forceinline__ void row(const Q3_KBlock& b, int sub, int t, uint32_t (&w)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      w[h] = (load4_even(b.q + 32 * (sub / 4) + 16 * h + 4 * t) >> 2 * (sub % 4) & 0x03030303) |
             (load4_even(b.high + 16 * h + 4 * t) >> sub & 0x01010101) << 2;
  }
  static __device__ __forceinline__ void scales(const Q3_KBlock& b, int sub, int i, RowScales& r) {
    r.d[i] = float_of_f16(b.d);
#pragma unroll
    for (int h = 0; h < 2; ++h) r.s[h][i] = Q3_K::scale(b, 2 * sub + h);
  }
};

}  // namespace chaski
