// How the prompt kernel (matmul_tiles.cuh) handles f16 and bf16 weights: 32 columns a stage. A warp
// copies 16 tokens of x unchanged and splits them (float_dot.cuh). It stores the parts in shared
// memory in the order in which all warps read them as B operands: a part of 8 tokens is 16 bytes a
// lane, in the order of lanes. Rows of x are copied 16 bytes at a time, so the number of columns
// must be a multiple of four.
//
// Cost of a stage for a warp: 64 products (m16n8k16, two for a weight and token), 64 fma or
// additions, 16 loads of parts, 8 loads and 16 permutes for the weights. Splitting its 16 tokens
// takes about 70 (bf16) or 120 (f16) instructions. nvcc makes 380 or 430 instructions in all, for
// 65536 multiply-adds of the definition. If each warp split what it multiplies, nothing would have
// to be shared, but the 70 or 120 instructions would be four times as many.
//
// Shared memory: 98.5 KB with the totals. A multiprocessor with 228 KB holds two blocks, one with
// 100 KB holds one.
#pragma once
#include "cuda/matmul/float_dot.cuh"
#include "cuda/matmul/tile_shape.cuh"

namespace chaski {

template <class F>
class FloatStage {
 public:
  static constexpr int kBlocks = 1, kWarps = TileShape::kThreads / 32,
                       kWarpTiles = TileShape::kTokens / 8 / kWarps;
  struct Shared {
    // 32 columns; four more so that tokens are in different banks
    float x[kWarps][8 * kWarpTiles][36];
    uint4 parts[TileShape::kTokens / 8][2][32];  // [tile of 8 tokens][low, high][lane]
    float scale[TileShape::kTokens];
  };

  __device__ __forceinline__ FloatStage(const MatMulJob& job, int64_t first_token, Shared& shared)
      : shared_(shared),
        x_(job.x),
        cols_(job.cols),
        warp_(threadIdx.x / 32),
        first_token_(int(first_token) + warp_ * 8 * kWarpTiles),
        last_token_(int(job.tokens) - 1) {
    copy(0);
  }
  __device__ __forceinline__ void begin(int stage, const StripAt<F>& strip, const Lane& l) {
    FloatWeights<F>::template load<false>(strip.strip, 32 * stage, cols_, l, codes_);
    wait_copies<0>();
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kWarpTiles; ++n) {
      float x[kLaneColumns];
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) x[i] = shared_.x[warp_][8 * n + l.g][4 * i + l.t];
      const SplitColumns p = split<Products>(x);
      const int tile = warp_ * kWarpTiles + n;
      shared_.parts[tile][0][4 * l.g + l.t] = {p.low[0][0], p.low[0][1], p.low[1][0], p.low[1][1]};
      shared_.parts[tile][1][4 * l.g + l.t] = {p.high[0][0], p.high[0][1], p.high[1][0],
                                               p.high[1][1]};
      if (Products::kScaled && l.t == 0) shared_.scale[8 * tile + l.g] = p.scale;
    }
    __syncthreads();
    copy(stage + 1);
  }
  __device__ __forceinline__ void multiply(int, const StripAt<F>&, int first_of_warp, const Lane& l,
                                           TileSums& acc) const {
    FloatWords words;
    FloatWeights<F>::words(codes_, words);
#pragma unroll
    for (int n = 0; n < TileShape::kTiles; ++n) {
      const auto& parts = shared_.parts[first_of_warp / 8 + n];
      const uint4 low = parts[0][4 * l.g + l.t], high = parts[1][4 * l.g + l.t];
      const SplitColumns x{{{low.x, low.y}, {low.z, low.w}}, {{high.x, high.y}, {high.z, high.w}}};
      float2 scale = {1, 1};
      if (Products::kScaled)
        scale = *reinterpret_cast<const float2*>(shared_.scale + first_of_warp + 8 * n + 2 * l.t);
      chaski::multiply<Products>(words, x, {scale.x, scale.y}, acc[n]);
    }
  }

 private:
  using Products = typename FloatWeights<F>::Products;

  // Copies the warp's tokens of a stage. A token past the last repeats the last one; columns past
  // the row's end are zero.
  __device__ __forceinline__ void copy(int stage) {
    const int lane = threadIdx.x % 32, column = 32 * stage + 4 * (lane % 8);
#pragma unroll
    for (int k = 0; k < 2 * kWarpTiles; ++k) {
      const int token = lane / 8 + 4 * k;
      float* to = &shared_.x[warp_][token][4 * (lane % 8)];
      if (column < cols_)
        copy_async16(to, x_ + int64_t(min(first_token_ + token, last_token_)) * cols_ + column);
      else
        *reinterpret_cast<float4*>(to) = float4{0, 0, 0, 0};
    }
    commit_copies();
  }

  Shared& shared_;
  const float* x_;
  int cols_, warp_, first_token_, last_token_;
  typename FloatWeights<F>::Codes codes_;
};

}  // namespace chaski
