// The matmul kernel for many tokens. A block multiplies 4 pairs of strips (128 rows; gated: 2 pairs
// of gate and 2 of up) with 128 tokens, by 8 warps of 32 rows x 64 tokens. The products and their
// order are those for one token (order.h), so both kernels give the same bits.
//
//   * Weights go from memory to registers, as fragments. The two warps that share them find them in
//     L1.
//   * Activations pass through shared memory, one stage of columns at a time. A stage is fetched
//     while the previous one is multiplied: IntStage and FloatStage.
//   * When a segment ends, its sums are added to the totals in shared memory. Registers hold only
//     the sums of one segment.
//
// Bytes: weights once per 128 tokens, activations once per 128 rows, mostly from L2.
#pragma once
#include "cuda/matmul/float_stage.cuh"
#include "cuda/matmul/int_stage.cuh"

namespace chaski {

template <class F>
using StageOf = std::conditional_t<F::kFloat, FloatStage<F>, IntStage<F>>;

template <class F>
struct TileShared {
  typename StageOf<F>::Shared stage;
  float totals[TileShape::kSlots][TileShape::kTokens][kPairRows];
};

// Adds the segment's sums to the totals (the first segment sets them) and resets the sums to zero.
__device__ __forceinline__ void flush(TileSums& acc, float (*totals)[kPairRows], bool first,
                                      const Lane& l) {
#pragma unroll
  for (int n = 0; n < TileShape::kTiles; ++n)
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

// Grid: (tiles of 128 tokens, groups of kSlots pairs).
template <class F>
__global__ void __launch_bounds__(TileShape::kThreads, 2) matmul_tiles(MatMulJob job) {
  using S = TileShape;
  auto& shared = *dynamic_shared<TileShared<F>>();
  const int warp = __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0), slot = warp % S::kSlots,
            first_of_warp = warp / S::kSlots * S::kWarpTokens;
  const int64_t first_token = int64_t(blockIdx.x) * S::kTokens, n_pairs = job.pairs();
  const int per_block = S::kSlots / job.matrices();
  auto pair_of = [&](int slot) { return int64_t(blockIdx.y) * per_block + slot / job.matrices(); };
  const bool busy = pair_of(slot) < n_pairs && first_token + first_of_warp < job.tokens;
  const LaneOf<F> l;
  int64_t pair = busy ? pair_of(slot) : 0;
  const MatMulPart& part = job.locate(pair, slot % job.matrices());
  const StripAt<F> strip(part.weight, part.strip_bytes, part.strips(), pair, l);

  wait_for_previous();
  start_next();
  StageOf<F> stages(job, first_token, shared.stage);
  constexpr int kStage = StageOf<F>::kBlocks;
  const int n_stages = (job.blocks + kStage - 1) / kStage, groups = groups_of(job.blocks);
  int segment = 0;
  bool first = true;
  TileSums acc = {};
  for (int stage = 0; stage < n_stages; ++stage) {
    // 1. Wait for this stage's activations; request its weights and the next activations.
    stages.begin(stage, strip, l);
    // 2. Multiply.
    if (busy) stages.multiply(stage, strip, first_of_warp, l, acc);
    // 3. A segment may end here.
    if (stage + 1 == n_stages ||
        segment_of(segment, groups).to * kGroupBlocks == (stage + 1) * kStage) {
      if (busy) flush(acc, shared.totals[slot] + first_of_warp, first, l);
      first = false, ++segment;
    }
    __syncthreads();
  }

  // 4. Write the totals: a warp for each token, a lane for each row.
  const int64_t left = job.tokens - first_token;
  const int tokens = int(left < S::kTokens ? left : S::kTokens), lane = threadIdx.x % 32;
  for (int s = 0; s < S::kSlots; s += job.matrices()) {
    int64_t p = pair_of(s);
    if (p >= n_pairs) break;
    const MatMulPart& to = job.locate(p, 0);
    for (int t = warp; t < tokens; t += S::kThreads / 32) {
      if (job.gated)
        write_gated(job, p, first_token + t, shared.totals[s][t][lane],
                    shared.totals[s + 1][t][lane]);
      else
        write_plain(to, p, first_token + t, shared.totals[s][t][lane]);
    }
  }
}

}  // namespace chaski
