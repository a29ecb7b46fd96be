// How the prompt kernel (matmul_tiles.cuh) handles block formats: two blocks of 32 columns a stage.
// Quantized activations are copied unchanged. An Act is 48 bytes, so the eight tokens of a B
// fragment are in different banks.
//
// Cost: for each block of 32 columns a warp issues 16 products (131072 multiply-adds of int8). It
// sums 2048 dots, each by a convert, a multiply and an fma; minima take one more fma. That is 192
// or 256 instructions, plus those that unpack and load: 380 for q8 and 478 for q4 in all. At four a
// clock this takes 95 to 120 clocks; the products alone would take about 30. So the scales of 32
// columns are the limit, not the tensor cores.
#pragma once
#include "cuda/matmul/int_dot.cuh"
#include "cuda/matmul/tile_shape.cuh"

namespace chaski {

template <class F>
class IntStage {
 public:
  static constexpr int kBlocks = 2;
  struct Shared {
    Act acts[2][kBlocks][TileShape::kTokens];
  };

  // Sets up a thread's part of copying a stage. A warp copies 32 tokens of one block. These are two
  // groups (operand.h) of 768 bytes, so each lane copies 16 bytes three times. Tokens past the last
  // repeat bytes of the last group.
  __device__ __forceinline__ IntStage(const MatMulJob& job, int64_t first_token, Shared& shared)
      : shared_(shared), blocks_(job.blocks) {
    using S = TileShape;
    const int warp = threadIdx.x / 32, first = warp % (S::kTokens / 32) * 32;
    block_ = warp / (S::kTokens / 32);
    to_ = int(sizeof(Act)) * (block_ * S::kTokens + first) + 16 * int(threadIdx.x % 32);
    const int64_t last_group = (job.tokens - 1) / kGroup;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      const int chunk = threadIdx.x % 32 + 32 * k, in_group = chunk % 48;
      int64_t group = (first_token + first) / kGroup + chunk / 48;
      if (group > last_group) group = last_group;
      const int bytes = int(job.acts.width(group)) * int(sizeof(Act));
      from_[k] = reinterpret_cast<const std::byte*>(job.acts.group(group)) + block_ * bytes +
                 min(16 * in_group, bytes - 16);
      step_[k] = kBlocks * bytes;
    }
    copy(shared_.acts[0]);
  }
  __device__ __forceinline__ void begin(int stage, const StripAt<F>& strip, const Lane& l) {
    copy(shared_.acts[(stage + 1) % 2]);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int block = stage * kBlocks + b;
      if (block >= blocks_) break;
      codes_[b] = Weights<F>::load(strip.tile(block), strip.sub(block), l);
      scales_[b] =
          Weights<F>::load_scales(strip.strip, strip.tile(block), strip.sub(block), l.quad);
    }
    wait_copies<1>();
    __syncthreads();
  }
  __device__ __forceinline__ void multiply(int stage, const StripAt<F>& strip, int first_of_warp,
                                           const LaneOf<F>& l, TileSums& acc) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int block = stage * kBlocks + b;
      if (block >= blocks_) break;
      Words w;
      RowScales r;
      Weights<F>::words(codes_[b], strip.sub(block), l, w);
      Weights<F>::panel(scales_[b], strip.sub(block), r);
      add_block(w, r, shared_.acts[stage % 2][b] + first_of_warp, l, acc);
    }
  }

 private:
  // Each call starts the copy of the next stage.
  __device__ __forceinline__ void copy(Act (*to)[TileShape::kTokens]) {
    if (block_ < blocks_) {
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        copy_async16(reinterpret_cast<std::byte*>(to) + to_ + 512 * k, from_[k]);
        from_[k] += step_[k];
      }
    }
    block_ += kBlocks;
    commit_copies();
  }
  // Multiplies one block of 32 columns of the warp's rows with its tokens.
  static __device__ __forceinline__ void add_block(const Words& w, const RowScales& r,
                                                   const Act* acts, const Lane& l, TileSums& acc) {
#pragma unroll
    for (int n = 0; n < TileShape::kTiles; ++n) {
      ActScales<F> a[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) a[j].load(acts[8 * n + 2 * l.t + j]);
      Dots<F> dots;
      dots.start(a);
      dots.multiply(w, act_words<F>(acts[8 * n + l.g], l.t));
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[n][j][i] = dots.add(acc[n][j][i], i, j, r, a[j]);
    }
  }
  static_assert(TileShape::kThreads / 32 == kBlocks * TileShape::kTokens / 32 &&
                sizeof(Act) * kGroup == 48 * 16);

  Shared& shared_;
  const std::byte* from_[3];
  int step_[3], to_, block_, blocks_;
  Codes<F> codes_[kBlocks];
  Scales<F> scales_[kBlocks];
};

}  // namespace chaski
