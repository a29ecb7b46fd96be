// One warp's share of a matmul with f32, f16 or bf16 weights: a segment (int_dot.cuh) of 32 rows times kTokens rows of x.
//
// A tile is the 16 rows of one column, so 16 bytes are 4 or 8 rows of a column and half a warp's load is 4 or 8 whole columns of a strip:
//
//        lane = 16 strip + kLanes phase + part       column = first + phase + kPhases k,  rows kRows part .. + kRows - 1
//
// A lane sums its own columns in one chain of fma in f32, then the phases are added by halves, then the segments first to last: an order
// that depends on the row's length alone. x is read as it is, so the products are those of the definition.
// Not tensor cores: their sums would have an order of their own, and f32 x would have to be split in two or three; a prompt of a 16-bit
// model therefore runs at the speed of fma.
#pragma once
#include "cuda/int_dot.cuh"

namespace chaski {

template <class F>
struct FloatLane {
  static constexpr int kRows = 16 / sizeof(typename F::Block), kLanes = kStrip / kRows, kPhases = 16 / kLanes;
  int strip, phase, part;
  __device__ __forceinline__ FloatLane() : strip(threadIdx.x % 32 / 16), phase(threadIdx.x % 16 / kLanes), part(threadIdx.x % kLanes) {}
};

template <class F>
__device__ __forceinline__ void row_values(const uint4& x, float (&w)[FloatLane<F>::kRows]) {
#pragma unroll
  for (int i = 0; i < FloatLane<F>::kRows; ++i) {
    if (F::kFormat == Format::f32) w[i] = __uint_as_float(word_of(x, i));
    else if (F::kFormat == Format::f16) w[i] = float_of_f16(half_word_of(x, i));
    else w[i] = float_of_bf16(half_word_of(x, i));
  }
}

// The lane's next columns from `first`, as far as they lie before `end`: as many loads under way as leave registers for the sums.
template <class F, int kTokens>
struct Columns {
  static constexpr int kAhead = kTokens == 1 ? 8 : 4, kStep = kAhead * FloatLane<F>::kPhases;
  uint4 x[kAhead];
  __device__ __forceinline__ void load(const std::byte* strip, int first, int end, const FloatLane<F>& l) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int c = first + l.phase + FloatLane<F>::kPhases * k;
      if (c < end) x[k] = load_once(strip + (int64_t(c) * kStrip + FloatLane<F>::kRows * l.part) * sizeof(typename F::Block));
    }
  }
};

// x: row of the first token, `cols` apart; `tokens` of them exist, the others repeat the last and are never written.
template <class F, int kTokens>
__device__ __forceinline__ void add_columns(const Columns<F, kTokens>& w, int first, int end, const float* x, int64_t cols, int tokens,
                                            const FloatLane<F>& l, float (&acc)[kTokens][FloatLane<F>::kRows]) {
#pragma unroll
  for (int k = 0; k < w.kAhead; ++k) {
    const int c = first + l.phase + FloatLane<F>::kPhases * k;
    if (c >= end) break;
    float rows[FloatLane<F>::kRows];
    row_values<F>(w.x[k], rows);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      const float v = x[(n < tokens ? n : tokens - 1) * cols + c];
#pragma unroll
      for (int i = 0; i < FloatLane<F>::kRows; ++i) acc[n][i] = fmaf(rows[i], v, acc[n][i]);
    }
  }
}

// Adds the phases; to[token][row of the pair].
template <class F, int kTokens>
__device__ __forceinline__ void store_phases(float (&acc)[kTokens][FloatLane<F>::kRows], const FloatLane<F>& l, float (*to)[kPairRows]) {
#pragma unroll
  for (int n = 0; n < kTokens; ++n)
#pragma unroll
    for (int i = 0; i < FloatLane<F>::kRows; ++i) {
#pragma unroll
      for (int k = FloatLane<F>::kLanes; k < 16; k *= 2) acc[n][i] += __shfl_xor_sync(kAllLanes, acc[n][i], k);
      if (l.phase == 0) to[n][kStrip * l.strip + FloatLane<F>::kRows * l.part + i] = acc[n][i];
    }
}

}  // namespace chaski
