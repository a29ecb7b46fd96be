// The matmul kernel for few tokens: a block of 8 warps multiplies one pair of strips (32 rows) with up to 16 tokens, each warp a segment
// of the columns; gated, 16 warps, the second 8 on `up`. Weights go from memory to registers in 16-byte loads and are used once: no
// shared memory on their way, and the first loads are under way before the kernel in front has ended (wait_for_previous).
//
// Bytes: every weight once (per 16 tokens, the others' time from L2), and per block the activations, 1.5 bytes a column and token, from L2.
// In flight: a warp up to 4 KB, an SM with 16 warps 64 KB; the memory of an H200 wants about 30.
#pragma once
#include "cuda/float_dot.cuh"

namespace chaski {

// Tokens of a block: one, or tiles of 8 columns of the tensor cores; sums[matrix * kSegments + segment][token][row].
template <int kTokens>
using SegmentSums = float[kTokens][kPairRows];

template <class F, int kTokens>
__device__ __forceinline__ void sum_segment_int(const MatMulJob& job, const MatMulPart& part, int64_t pair, int segment, float (*sums)[kPairRows]) {
  const Lane l;
  const StripAt<F> strip(part.weight, part.strip_bytes, part.strips(), pair, l);
  const Run run = segment_of(segment, groups_of(job.blocks));
  GroupWeights<F> weights;
  if (run.from < run.to) weights.load(strip, run.from, job.blocks, l);
  wait_for_previous();
  start_next();
  if constexpr (kTokens == 1) {
    float acc[4] = {0, 0, 0, 0};
    for (int group = run.from; group < run.to; ++group) {
      if (group > run.from) weights.load(strip, group, job.blocks, l);
      add_group_one<F>(weights, strip, group, job.blocks, job.acts.data, l, acc);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (l.t == 0) sums[0][4 * l.g + i] = acc[i];
  } else {
    constexpr int kTiles = kTokens / 8;
    const TokenTiles<kTiles> tokens{job.acts.group(blockIdx.x * kTokens / kGroup), int(job.acts.width(blockIdx.x * kTokens / kGroup)),
                                    int(blockIdx.x * kTokens % kGroup)};
    float acc[kTiles][2][4] = {};
    for (int group = run.from; group < run.to; ++group) {
      if (group > run.from) weights.load(strip, group, job.blocks, l);
      add_group_many<F, kTiles>(weights, strip, group, job.blocks, tokens, l, acc);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[8 * n + 2 * l.t + j][4 * l.g + i] = acc[n][j][i];
  }
}

template <class F, int kTokens>
__device__ __forceinline__ void sum_segment_float(const MatMulJob& job, const MatMulPart& part, int64_t pair, int segment, float (*sums)[kPairRows]) {
  const FloatLane<F> l;
  const int64_t at = 2 * pair + l.strip, first_token = int64_t(blockIdx.x) * kTokens;
  const std::byte* strip = part.weight + (at < part.strips() ? at : part.strips() - 1) * part.strip_bytes;
  const Run run = segment_of(segment, groups_of(job.blocks));
  constexpr int kGroupColumns = 32 * kGroupBlocks, kStep = FloatLane<F>::kAhead * FloatLane<F>::kPhases;
  const int from = run.from * kGroupColumns, end = min(run.to * kGroupColumns, job.cols);
  Columns<F> columns;
  columns.load(strip, from, end, l);
  wait_for_previous();
  start_next();
  float acc[kTokens][FloatLane<F>::kRows] = {};
  const int tokens = int(job.tokens - first_token < kTokens ? job.tokens - first_token : kTokens);
  for (int c = from; c < end; c += kStep) {
    if (c > from) columns.load(strip, c, end, l);
    add_columns<F, kTokens>(columns, c, end, job.x + first_token * job.cols, job.cols, tokens, l, acc);
  }
  store_phases<F, kTokens>(acc, l, sums);
}

// Grid: (token tiles, pairs): the blocks that share weights are neighbours, so that L2 serves all but the first.
template <class F, int kTokens>
__global__ void __launch_bounds__(512, 1) matmul_rows(MatMulJob job) {
  auto* sums = dynamic_shared<SegmentSums<kTokens>>();
  // Through a shuffle, so that the compiler knows that a warp goes one way.
  const int warp = __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0), lane = threadIdx.x % 32, warps = blockDim.x / 32;
  int64_t pair = blockIdx.y;
  const MatMulPart& part = job.locate(pair, warp / kSegments);
  if constexpr (F::kFloat) sum_segment_float<F, kTokens>(job, part, pair, warp % kSegments, sums[warp]);
  else sum_segment_int<F, kTokens>(job, part, pair, warp % kSegments, sums[warp]);
  __syncthreads();

  const int64_t first = int64_t(blockIdx.x) * kTokens;
  const int tokens = int(job.tokens - first < kTokens ? job.tokens - first : kTokens);
  auto total = [&](int matrix, int t) {
    float sum = sums[matrix * kSegments][t][lane];
#pragma unroll
    for (int s = 1; s < kSegments; ++s) sum = sum + sums[matrix * kSegments + s][t][lane];
    return sum;
  };
  for (int t = warp; t < tokens; t += warps) {
    if (job.gated) write_gated(job, pair, first + t, total(0, t), total(1, t));
    else write_plain(part, pair, first + t, total(0, t));
  }
}

}  // namespace chaski
