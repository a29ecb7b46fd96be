// One warp's share of a matmul by fma: a segment (order.h) of 32 rows times kTokens rows of x.
// Weights are f32, or codes under an f32 scale (quant/packed/scaled_floats.h). Codes become scale *
// code, rounded once, as their definition says. Weights of 16 bits use the tensor cores
// (float_dot.cuh); these weights would have to be split in three for that. f32 is for models that
// serve as a reference. The other formats take half or a quarter of the bytes of f16, which pays if
// few tokens share a pass.
//
// Neighbouring bytes of a tile are the 16 rows of one column. So a load of 16 bytes (f32) or 4
// bytes (codes) is 4 rows of a column, and the load of half a warp is 4 whole columns of a strip:
//
//        lane = 16 strip + 4 phase + part
//        column = first + phase + 4 k,  rows 4 part .. 4 part + 3
//
// A lane sums its own columns in one chain of fma. Then the phases are added by halves, and the
// segments from first to last. This order depends on the row's length alone.
#pragma once
#include "cuda/device/loads.cuh"
#include "cuda/matmul/matmul.cuh"
#include "quant/formats.h"

namespace chaski {

struct FmaLane {
  static constexpr int kRows = 4, kPhases = 4;
  int strip, phase, part;
  __device__ __forceinline__ FmaLane()
      : strip(threadIdx.x % 32 / 16), phase(threadIdx.x % 16 / 4), part(threadIdx.x % 4) {}
};

// ColumnsAhead<F, kTokens>: the lane's next columns from `first` on, up to `end`.
//   kAhead   columns at a time: as many loads in flight as leave registers for the sums
//   load()   starts the loads
//   at(k)    the four weights of column k
template <class F, int kTokens>
struct ColumnsAhead;

struct FourWeights {
  float row[FmaLane::kRows];
};

template <int kTokens>
struct ColumnsAhead<F32, kTokens> {
  static constexpr int kAhead = kTokens == 1 ? 8 : 4;
  uint4 x[kAhead];
  __device__ __forceinline__ explicit ColumnsAhead(const FmaLane&) {}
  __device__ __forceinline__ void load(const std::byte* strip, int first, int end,
                                       const FmaLane& l) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int c = first + l.phase + FmaLane::kPhases * k;
      if (c < end)
        x[k] = load_once(strip + (int64_t(c) * kStrip + FmaLane::kRows * l.part) * sizeof(float));
    }
  }
  __device__ __forceinline__ FourWeights at(int k) const {
    FourWeights w;
#pragma unroll
    for (int i = 0; i < FmaLane::kRows; ++i) w.row[i] = __uint_as_float(word_of(x[k], i));
    return w;
  }
};

// Loads half a block: 32 columns at a time; `first` is a multiple of 32. Rows are whole blocks.
template <class F>
struct HalfBlockAhead {
  static constexpr int kAhead = 8;
  uint4 scale;
  __device__ __forceinline__ const typename F::Tile& load_scale(const std::byte* strip, int first,
                                                                const FmaLane& l) {
    const auto& tile = reinterpret_cast<const typename F::Tile*>(strip)[first / F::kBlock];
    scale = load16(tile.d + FmaLane::kRows * l.part);
    return tile;
  }
  __device__ __forceinline__ float scaled(float code, int i) const {
    return __fmul_rn(__uint_as_float(word_of(scale, i)), code);
  }
};

// A byte holds two columns that are 16 apart, so the lane's columns k and k + 4 are in one word.
// Lane n keeps entry n % 16 of the codebook; a shuffle looks a code up for the whole warp.
template <class F>
struct CodebookAhead : HalfBlockAhead<F> {
  static constexpr int kWords = HalfBlockAhead<F>::kAhead / 2;
  uint32_t codes[kWords];
  float entry;
  __device__ __forceinline__ explicit CodebookAhead(const FmaLane&)
      : entry(F::entry(int(threadIdx.x % 16))) {}
  __device__ __forceinline__ void load(const std::byte* strip, int first, int, const FmaLane& l) {
    const auto& tile = this->load_scale(strip, first, l);
#pragma unroll
    for (int k = 0; k < kWords; ++k)
      codes[k] = load4(tile.q[first % F::kBlock / 2 + l.phase + FmaLane::kPhases * k] +
                       FmaLane::kRows * l.part);
  }
  __device__ __forceinline__ FourWeights at(int k) const {
    FourWeights w;
#pragma unroll
    for (int i = 0; i < FmaLane::kRows; ++i) {
      const int code = int(codes[k % kWords] >> (8 * i + 4 * (k / kWords)) & 15);
      w.row[i] = this->scaled(__shfl_sync(kAllLanes, entry, code), i);
    }
    return w;
  }
};
template <int kTokens>
struct ColumnsAhead<NF4, kTokens> : CodebookAhead<NF4> {
  using CodebookAhead<NF4>::CodebookAhead;
};
template <int kTokens>
struct ColumnsAhead<FP4, kTokens> : CodebookAhead<FP4> {
  using CodebookAhead<FP4>::CodebookAhead;
};

template <int kTokens>
struct ColumnsAhead<F8S, kTokens> : HalfBlockAhead<F8S> {
  uint32_t codes[kAhead];
  __device__ __forceinline__ explicit ColumnsAhead(const FmaLane&) {}
  __device__ __forceinline__ void load(const std::byte* strip, int first, int, const FmaLane& l) {
    const auto& tile = load_scale(strip, first, l);
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      codes[k] = load4(tile.q[first % F8S::kBlock + l.phase + FmaLane::kPhases * k] +
                       FmaLane::kRows * l.part);
  }
  __device__ __forceinline__ FourWeights at(int k) const {
    FourWeights w;
#pragma unroll
    for (int i = 0; i < FmaLane::kRows; ++i)
      w.row[i] = scaled(f32_of_f8(uint8_t(byte_of(codes[k], i))), i);
    return w;
  }
};

// x: the row of the first token; rows are `cols` apart. Only `tokens` of the kTokens exist. The
// others repeat the last token and are never written.
template <class F, int kTokens>
__device__ __forceinline__ void add_columns(const ColumnsAhead<F, kTokens>& w, int first, int end,
                                            const float* x, int64_t cols, int tokens,
                                            const FmaLane& l,
                                            float (&acc)[kTokens][FmaLane::kRows]) {
#pragma unroll
  for (int k = 0; k < w.kAhead; ++k) {
    const int c = first + l.phase + FmaLane::kPhases * k;
    if (F::kBlock == 1 && c >= end) break;
    const FourWeights weights = w.at(k);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      const float v = x[(n < tokens ? n : tokens - 1) * cols + c];
#pragma unroll
      for (int i = 0; i < FmaLane::kRows; ++i) acc[n][i] = fmaf(weights.row[i], v, acc[n][i]);
    }
  }
}

// Adds the phases and stores the sums in to[token][row of the pair].
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
