// The matmul kernel for many tokens: a block multiplies 4 pairs of strips (128 rows; gated, 2 pairs of gate and 2 of up) with 128 tokens,
// 8 warps of 32 rows x 64 tokens. Same products, same order as for one token (int_dot.cuh): the bits do not tell which kernel ran.
//
//   * weights go from memory to registers, as fragments; the two warps that share them meet in L1;
//   * activations pass through shared memory, two blocks of 32 columns at a time, fetched while the two before are multiplied
//     (an Act is 48 bytes: the eight tokens of a B fragment lie in different banks, as they are);
//   * when a segment ends its sums are added to the totals, which wait in shared memory: registers hold one segment's.
//
// Arithmetic: per block of 32 columns a warp issues 16 products (131072 multiply-adds of int8), and sums 2048 dots by convert, multiply
// and fma, with minima one fma more: 192 or 256 instructions beside 90 to 150 that unpack and load. At four a clock that is 75 to 100
// clocks, where the products alone would take about 30: the scales of 32 columns are the limit, not the tensor cores. Bytes: weights once
// per 128 tokens, activations once per 128 rows, mostly from L2.
#pragma once
#include "cuda/int_dot.cuh"

namespace chaski {

struct TileShape {
  static constexpr int kSlots = 4, kTokens = 128, kWarpTokens = 64, kStage = 2;  // stage: blocks of 32 columns
  static constexpr int kThreads = 32 * kSlots * (kTokens / kWarpTokens);
  struct Shared {
    Act acts[2][kStage][kTokens];
    float totals[kSlots][kTokens][kPairRows];
  };
};

// A thread's part of copying a stage: a warp takes 32 tokens of one block, which are two groups (operand.h) of 768 bytes, 16 bytes a lane and
// three times. Tokens past the last repeat bytes of the last group.
class StageCopy {
 public:
  __device__ __forceinline__ StageCopy(const MatMulJob& job, int64_t first_token) : blocks_(job.blocks) {
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
      from_[k] = reinterpret_cast<const std::byte*>(job.acts.group(group)) + block_ * bytes + min(16 * in_group, bytes - 16);
      step_[k] = S::kStage * bytes;
    }
  }
  // The stages in order, one a call.
  __device__ __forceinline__ void copy(Act (*to)[TileShape::kTokens]) {
    if (block_ < blocks_) {
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        copy_async16(reinterpret_cast<std::byte*>(to) + to_ + 512 * k, from_[k]);
        from_[k] += step_[k];
      }
    }
    block_ += TileShape::kStage;
    commit_copies();
  }

 private:
  const std::byte* from_[3];
  int step_[3], to_, block_, blocks_;
};
static_assert(TileShape::kThreads / 32 == TileShape::kStage * TileShape::kTokens / 32 && sizeof(Act) * kGroup == 48 * 16);

template <class F>
struct WarpTile {
  static constexpr int kTiles = TileShape::kWarpTokens / 8;
  float acc[kTiles][2][4] = {};

  // One block of 32 columns of the warp's rows times its tokens.
  __device__ __forceinline__ void multiply(const Words& w, const RowScales& r, const Act* acts, const Lane& l) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
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
  // The segment's sums onto the totals (or, the first, in their place), and back to zero.
  __device__ __forceinline__ void flush(float (*totals)[kPairRows], bool first, const Lane& l) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        auto* at = reinterpret_cast<float4*>(&totals[8 * n + 2 * l.t + j][4 * l.g]);
        float4 sum = first ? float4{0, 0, 0, 0} : *at;
        sum.x += acc[n][j][0], sum.y += acc[n][j][1], sum.z += acc[n][j][2], sum.w += acc[n][j][3];
        *at = sum;
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[n][j][i] = 0;
      }
  }
};

// Grid: (tiles of 128 tokens, rows of slots).
template <class F>
__global__ void __launch_bounds__(TileShape::kThreads, 2) matmul_tiles(MatMulJob job) {
  using S = TileShape;
  auto& shared = *dynamic_shared<S::Shared>();
  const int warp = __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0), slot = warp % S::kSlots, first_of_warp = warp / S::kSlots * S::kWarpTokens;
  const int64_t first_token = int64_t(blockIdx.x) * S::kTokens, n_pairs = job.pairs();
  const int per_block = S::kSlots / job.matrices();
  auto pair_of = [&](int slot) { return int64_t(blockIdx.y) * per_block + slot / job.matrices(); };
  const bool busy = pair_of(slot) < n_pairs && first_token + first_of_warp < job.tokens;
  const Lane l;
  int64_t pair = busy ? pair_of(slot) : 0;
  const MatMulPart& part = job.locate(pair, slot % job.matrices());
  const StripAt<F> strip(part.weight, part.strip_bytes, part.strips(), pair, l);

  wait_for_previous();
  start_next();
  StageCopy copies(job, first_token);
  copies.copy(shared.acts[0]);
  const int stages = (job.blocks + S::kStage - 1) / S::kStage, groups = groups_of(job.blocks);
  int segment = 0;
  bool first = true;
  WarpTile<F> tile;
  for (int stage = 0; stage < stages; ++stage) {
    // 1. the next activations and this stage's weights are asked for
    copies.copy(shared.acts[(stage + 1) % 2]);
    Codes<F> codes[S::kStage];
    Scales<F> scales[S::kStage];
#pragma unroll
    for (int b = 0; b < S::kStage; ++b) {
      const int block = stage * S::kStage + b;
      if (block >= job.blocks) break;
      codes[b] = Weights<F>::load(strip.tile(block), strip.sub(block), l);
      scales[b] = Weights<F>::load_scales(strip.strip, strip.tile(block), strip.sub(block), l.quad);
    }
    // 2. this stage's activations have come
    wait_copies<1>();
    __syncthreads();
    // 3. multiply
#pragma unroll
    for (int b = 0; b < S::kStage; ++b) {
      const int block = stage * S::kStage + b;
      if (block >= job.blocks || !busy) break;
      Words w;
      RowScales r;
      Weights<F>::words(codes[b], strip.sub(block), l, w);
      Weights<F>::panel(scales[b], strip.sub(block), r);
      tile.multiply(w, r, shared.acts[stage % 2][b] + first_of_warp, l);
    }
    // 4. a segment may end here
    if (stage + 1 == stages || segment_of(segment, groups).to * kGroupBlocks == (stage + 1) * S::kStage) {
      if (busy) tile.flush(shared.totals[slot] + first_of_warp, first, l);
      first = false, ++segment;
    }
    __syncthreads();
  }

  // 5. totals to where they are wanted: a warp a token, a lane a row
  const int64_t left = job.tokens - first_token;
  const int tokens = int(left < S::kTokens ? left : S::kTokens), lane = threadIdx.x % 32;
  for (int s = 0; s < S::kSlots; s += job.matrices()) {
    int64_t p = pair_of(s);
    if (p >= n_pairs) break;
    const MatMulPart& to = job.locate(p, 0);
    for (int t = warp; t < tokens; t += S::kThreads / 32) {
      if (job.gated) write_gated(job, p, first_token + t, shared.totals[s][t][lane], shared.totals[s + 1][t][lane]);
      else write_plain(to, p, first_token + t, shared.totals[s][t][lane]);
    }
  }
}

}  // namespace chaski
