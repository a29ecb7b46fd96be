// One warp's share of a matmul with f32 weights: a segment (order.h) of 32 rows times kTokens rows
// of x, by fma. Weights of 16 bits have the tensor cores (float_dot.cuh); f32 ones would have to be
// split in three, for models that are run to be compared with.
//
// A tile is the 16 rows of one column, so 16 bytes are 4 rows of a column and half a warp's load is
// 4 whole columns of a strip:
//
//        lane = 16 strip + 4 phase + part
//        column = first + phase + 4 k,  rows 4 part .. 4 part + 3
//
// A lane sums its own columns in one chain of fma, then the phases are added by halves, then the
// segments first to last: an order that depends on the row's length alone.
#pragma once
#include "cuda/loads.cuh"
#include "cuda/matmul.cuh"

namespace chaski {

struct FmaLane {
  static constexpr int kRows = 4, kPhases = 4;
  int strip, phase, part;
  __device__ __forceinline__ FmaLane()
      : strip(threadIdx.x % 32 / 16), phase(threadIdx.x % 16 / 4), part(threadIdx.x % 4) {}
};

// The lane's next columns from `first`, as far as they lie before `end`: as many loads under way as
// leave registers for the sums.
template <int kTokens>
struct ColumnsAhead {
  static constexpr int kAhead = kTokens == 1 ? 8 : 4, kStep = kAhead * FmaLane::kPhases;
  uint4 x[kAhead];
  __device__ __forceinline__ void load(const std::byte* strip, int first, int end,
                                       const FmaLane& l) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int c = first + l.phase + FmaLane::kPhases * k;
      if (c < end)
        x[k] = load_once(strip + (int64_t(c) * kStrip + FmaLane::kRows * l.part) * sizeof(float));
    }
  }
};

// x: row of the first token, `cols` apart; `tokens` of them exist, the others repeat the last and
// are never written.
template <int kTokens>
__device__ __forceinline__ void add_columns(const ColumnsAhead<kTokens>& w, int first, int end,
                                            const float* x, int64_t cols, int tokens,
                                            const FmaLane& l,
                                            float (&acc)[kTokens][FmaLane::kRows]) {
#pragma unroll
  for (int k = 0; k < w.kAhead; ++k) {
    const int c = first + l.phase + FmaLane::kPhases * k;
    if (c >= end) break;
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      const float v = x[(n < tokens ? n : tokens - 1) * cols + c];
#pragma unroll
      for (int i = 0; i < FmaLane::kRows; ++i)
        acc[n][i] = fmaf(__uint_as_float(word_of(w.x[k], i)), v, acc[n][i]);
    }
  }
}

// Adds the phases; to[token][row of the pair].
template <int kTokens>
__device__ __forceinline__ void store_phases(float (&acc)[kTokens][FmaLane::kRows],
                                             const FmaLane& l, float (*to)[kPairRows]) {
#pragma unroll
  for (int n = 0; n < kTokens; ++n)
#pragma unroll
    for (int i = 0; i < FmaLane::kRows; ++i) {
#pragma unroll
      for (int k = 4; k < 16; k *= 2) acc[n][i] += __shfl_xor_sync(kAllLanes, acc[n][i], k);
      if (l.phase == 0) to[n][kStrip * l.strip + FmaLane::kRows * l.part + i] = acc[n][i];
    }
}

}  // namespace chaski
