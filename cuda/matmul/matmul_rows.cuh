// The matmul kernel for few tokens. A block multiplies pairs of strips (32 rows; gated: a pair of
// gate and one of up) with up to 16 tokens. Each of its warps takes a segment of the columns.
// Weights go from memory to registers in loads of 16 bytes (8 for f16 and bf16). They are used
// once, so they do not pass through shared memory.
//
// The memory must never be idle. There are about as many blocks as fit on the device, and each
// takes pair after pair. A warp requests its next weights as soon as the registers of the last ones
// are free: before it combines results and before the segments are added. It requests the first
// ones before the previous kernel has ended (wait_for_previous). Up to 4 KB a warp are in flight,
// 64 KB an SM with 16 warps. The memory of an H200 needs about 30.
//
// A decode step's kernel may also do the steps before and after the matmul (fused.h). Before: every
// block norms the row for itself, with some hundred threads of ten columns each, while its weights
// are loading. The row comes from L2: 8 bytes a column, compared with some hundred bytes of
// weights. After: the warp that has the sums of 32 rows rotates and stores them.
//
// Bytes: every weight is read once from memory (for further 16 tokens from L2). For each pair the
// activations are read from L2: for a column and token 1.5 bytes with block formats, or 4 with
// floats, which every warp splits for itself (float_dot.cuh).
#pragma once
#include "cuda/matmul/float_dot.cuh"
#include "cuda/matmul/fma_dot.cuh"

namespace chaski {

// A warp's position in the weights. It goes through its segment of matrix 0, then of matrix 1, of
// the block's first pair; then of the second pair, and so on.
struct Place {
  int64_t pair, pairs;  // counted over all parts
  int matrix = 0;
  // Where an expert or a head begins in every part. A kernel that changed its argument `job`
  // instead would copy it to the stack of each thread.
  int64_t weight_bytes = 0, biases = 0;
  __device__ __forceinline__ explicit Place(const MatMulJob& job)
      : pair(blockIdx.y), pairs(job.pairs()) {}
  __device__ __forceinline__ bool valid() const { return pair < pairs; }
  // Moves to the next place; false if there is none.
  __device__ __forceinline__ bool advance(const MatMulJob& job) {
    if (++matrix == job.matrices()) matrix = 0, pair += gridDim.y;
    return valid();
  }
};

// x of the block's tokens: as it is in memory, or, for one token, as norm_input() leaves it in
// shared memory.
struct RowInput {
  const float* x;
  const Act* acts;
};
template <class F>
__device__ __forceinline__ RowInput norm_input(const MatMulJob& job, std::byte* shared) {
  auto* acts = reinterpret_cast<Act*>(shared);
  auto *part = reinterpret_cast<float*>(acts + job.blocks), *row = part + 32;
  NormRow a = job.norm;
  if (blockIdx.y > 0) a.sum = nullptr;
  a.y = F::kFloat ? row : nullptr;
  a.acts = {F::kFloat ? nullptr : acts, 1, job.blocks};
  norm_row(a, 0, row, part);
  __syncthreads();
  return {row, acts};
}

// A segment's sums for block formats, with one token or tiles of 8 tokens.
template <class F, int kTokens>
class IntSegment {
 public:
  __device__ __forceinline__ IntSegment(const MatMulJob& job, int segment)
      : run_(segment_of(segment, groups_of(job.blocks))) {}
  __device__ __forceinline__ void begin(const MatMulJob& job, const Place& place) {
    int64_t pair = place.pair;
    const MatMulPart& part = job.locate(pair, place.matrix);
    strip_ = {part.weight + place.weight_bytes, part.strip_bytes, part.strips(), pair, lane_};
    weights_.load(strip_, run_.from, job.blocks, lane_);
  }
  // begin() was called for this place. Moves `place` on.
  __device__ __forceinline__ void sum(const MatMulJob& job, const RowInput& in, Place& place,
                                      float (*sums)[kPairRows]) {
    constexpr int kTiles = kTokens > 8 ? kTokens / 8 : 1;
    TokenTiles<kTiles> tokens(job.acts, int64_t(blockIdx.x) * kTokens, run_.from * kGroupBlocks,
                              lane_);
    float acc[kTiles][2][4] = {};
    for (int group = run_.from; group < run_.to; ++group) {
      const StripAt<F> strip = strip_;
      auto load_next = [&] {
        if (group + 1 < run_.to)
          weights_.load(strip_, group + 1, job.blocks, lane_);
        else if (place.advance(job))
          begin(job, place);
      };
      if constexpr (kTokens == 1) {
        add_group_one<F>(weights_, strip, group, job.blocks, in.acts, lane_, acc[0][0], load_next);
      } else {
        add_group_many<F, kTiles>(weights_, strip, group, job.blocks, tokens, lane_, acc);
        load_next();
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int j = 0; j < (kTokens == 1 ? 1 : 2); ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (kTokens > 1 || lane_.t == 0)
            sums[kTokens == 1 ? 0 : 8 * n + 2 * lane_.t + j][4 * lane_.g + i] = acc[n][j][i];
  }

 private:
  const LaneOf<F> lane_;
  const Run run_;
  StripAt<F> strip_;
  GroupWeights<F> weights_;
};

// A segment's sums for f16 and bf16. With one token all eight columns are that token: the sum is
// computed eight times.
template <class F, int kTokens>
class FloatSegment {
 public:
  __device__ __forceinline__ FloatSegment(const MatMulJob& job, int segment) {
    const Run run = segment_of(segment, groups_of(job.blocks));
    from_ = run.from * kGroupBlocks, to_ = min(run.to * kGroupBlocks, job.blocks);
  }
  __device__ __forceinline__ void begin(const MatMulJob& job, const Place& place) {
    move(job, place), load(job, from_);
  }
  __device__ __forceinline__ void sum(const MatMulJob& job, const RowInput& in, Place& place,
                                      float (*sums)[kPairRows]) {
    float acc[kTiles][2][4] = {};
    for (int block = from_; block < to_; block += kAhead) {
      FloatWords words[kAhead];
#pragma unroll
      for (int b = 0; b < kAhead; ++b) FloatWeights<F>::words(codes_[b], words[b]);
      // There is only one load in the code; with more, each would need its own registers.
      int ahead = block + kAhead;
      if (ahead >= to_) {
        ahead = job.blocks;
        if (place.advance(job)) move(job, place), ahead = from_;
      }
      load(job, ahead);
#pragma unroll
      for (int b = 0; b < kAhead; ++b)
        if (block + b < to_) add_block(job, in.x, words[b], block + b, acc);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (const int token = 8 * n + 2 * lane_.t + j; token < kTokens)
            sums[token][4 * lane_.g + i] = acc[n][j][i];
  }

 private:
  using Products = typename FloatWeights<F>::Products;
  // blocks of 32 columns a load: 4 KB
  static constexpr int kAhead = 2, kTiles = kTokens > 8 ? kTokens / 8 : 1;

  __device__ __forceinline__ void move(const MatMulJob& job, const Place& place) {
    int64_t pair = place.pair;
    const MatMulPart& part = job.locate(pair, place.matrix);
    strip_ = {part.weight + place.weight_bytes, part.strip_bytes, part.strips(), pair, lane_};
  }
  // Loads nothing from the row's end on.
  __device__ __forceinline__ void load(const MatMulJob& job, int block) {
#pragma unroll
    for (int b = 0; b < kAhead; ++b)
      FloatWeights<F>::template load<true>(strip_.strip, 32 * (block + b), job.cols, lane_,
                                           codes_[b]);
  }
  __device__ __forceinline__ void add_block(const MatMulJob& job, const float* all,
                                            const FloatWords& words, int block,
                                            float (&acc)[kTiles][2][4]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      // a token past the last is computed, but never written
      const int64_t token = int64_t(blockIdx.x) * kTokens + 8 * n + lane_.g;
      const int first = 32 * block + lane_.t, left = job.cols - first;
      const float* row = all + (token < job.tokens ? token : job.tokens - 1) * job.cols + first;
      float x[kLaneColumns];
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) x[i] = 4 * i < left ? row[4 * i] : 0.0f;
      const SplitColumns parts = split<Products>(x);
      float scale[2];
#pragma unroll
      for (int j = 0; j < 2; ++j)
        scale[j] =
            Products::kScaled ? __shfl_sync(kAllLanes, parts.scale, 4 * (2 * lane_.t + j)) : 1.0f;
      multiply<Products>(words, parts, scale, acc[n]);
    }
  }

  const Lane lane_;
  int from_, to_;
  StripAt<F> strip_;
  typename FloatWeights<F>::Codes codes_[kAhead];
};

// A segment's sums for f32, and for codes under an f32 scale.
template <class F, int kTokens>
class FmaSegment {
 public:
  __device__ __forceinline__ FmaSegment(const MatMulJob& job, int segment) : columns_(lane_) {
    const Run run = segment_of(segment, groups_of(job.blocks));
    from_ = run.from * 32 * kGroupBlocks, end_ = min(run.to * 32 * kGroupBlocks, job.cols);
  }
  __device__ __forceinline__ void begin(const MatMulJob& job, const Place& place) {
    int64_t pair = place.pair;
    const MatMulPart& part = job.locate(pair, place.matrix);
    const int64_t at = 2 * pair + lane_.strip;
    strip_ = part.weight + place.weight_bytes +
             (at < part.strips() ? at : part.strips() - 1) * part.strip_bytes;
    columns_.load(strip_, from_, end_, lane_);
  }
  __device__ __forceinline__ void sum(const MatMulJob& job, const RowInput& in, Place& place,
                                      float (*sums)[kPairRows]) {
    constexpr int kStep = ColumnsAhead<F, kTokens>::kAhead * FmaLane::kPhases;
    const int64_t first_token = int64_t(blockIdx.x) * kTokens, left = job.tokens - first_token;
    const int tokens = int(left < kTokens ? left : kTokens);
    float acc[kTokens][FmaLane::kRows] = {};
    for (int c = from_; c < end_; c += kStep) {
      add_columns<F, kTokens>(columns_, c, end_, in.x + first_token * job.cols, job.cols, tokens,
                              lane_, acc);
      if (c + kStep < end_)
        columns_.load(strip_, c + kStep, end_, lane_);
      else if (place.advance(job))
        begin(job, place);
    }
    store_phases<kTokens>(acc, lane_, sums);
  }

 private:
  const FmaLane lane_;
  int from_, end_;
  const std::byte* strip_;
  ColumnsAhead<F, kTokens> columns_;
};

template <class F, int kTokens>
using SegmentOf = std::conditional_t<
    kByFma<F>, FmaSegment<F, kTokens>,
    std::conditional_t<F::kFloat, FloatSegment<F, kTokens>, IntSegment<F, kTokens>>>;

// Reads the warp number through a shuffle, so that the compiler knows that it is uniform in a warp.
__device__ __forceinline__ int this_warp() {
  return __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0);
}

// The block's main loop. `in` has its tokens, whose rows of the output are row_of(0) and so on, and
// its first weights are loading. all_sums is RowSums<kTokens>. spare: shared memory of the warp
// that stores heads, or null.
template <class F, int kTokens, class RowOf>
__device__ __forceinline__ void multiply_pairs(const MatMulJob& job, const RowInput& in,
                                               SegmentOf<F, kTokens>& segment, Place& place,
                                               RowOf row_of, int tokens,
                                               typename RowSums<kTokens>::Segment* all_sums,
                                               Act* spare) {
  using Sums = RowSums<kTokens>;
  const int warp = this_warp(), segments = blockDim.x / 32, lane = threadIdx.x % 32;
  for (int parity = 0; place.valid(); parity = (parity + 1) % Sums::kParities) {
    int64_t pair = place.pair;  // the pair whose sums are added below; `place` moves on
    auto* sums = all_sums + parity * job.matrices() * segments;
    // 1. Sum this warp's segment. It also requests the weights of the next place.
    for (int matrix = 0; matrix < job.matrices(); ++matrix)
      segment.sum(job, in, place, sums[matrix * segments + warp]);
    __syncthreads();
    // 2. Add the segments from the first to the last: a warp for each token, a lane for each row.
    auto total = [&](int matrix, int t) {
      float sum = sums[matrix * segments][t][lane];
      for (int s = 1; s < segments; ++s) sum = sum + sums[matrix * segments + s][t][lane];
      return sum;
    };
    const MatMulPart& part = job.locate(pair, 0);
    for (int t = warp; t < tokens; t += segments) {
      if (job.gated)
        write_gated(job, pair, row_of(t), total(0, t), total(1, t), place.biases);
      else if (kTokens == 1 && spare && part.role != HeadRole::none)
        write_heads(job, part, pair, total(0, t), spare);
      else
        write_plain(part, pair, row_of(t), total(0, t), place.biases);
    }
    if (Sums::kParities == 1) __syncthreads();
  }
}

// Grid: (token tiles, blocks that share the pairs). Each warp has a segment.
template <class F, int kTokens>
__global__ void __launch_bounds__(32 * kMostSegments, 1) matmul_rows(MatMulJob job) {
  using Sums = RowSums<kTokens>;
  auto* all_sums = dynamic_shared<typename Sums::Segment>();
  __shared__ Act spare;  // for the warp that stores heads
  const int segments = blockDim.x / 32;
  const int64_t first = int64_t(blockIdx.x) * kTokens;
  const int tokens = int(job.tokens - first < kTokens ? job.tokens - first : kTokens);
  SegmentOf<F, kTokens> segment(job, this_warp());
  Place place(job);
  segment.begin(job, place);
  if (kTokens == 1 && job.norm.x) prefetch_norm(job.norm);
  wait_for_previous();
  start_next();
  RowInput in{job.x, job.acts.data};
  if constexpr (kTokens == 1)
    if (job.norm.x)
      in = norm_input<F>(job, reinterpret_cast<std::byte*>(
                                  all_sums + Sums::kParities * job.matrices() * segments));
  const auto row_of = [first](int t) { return first + t; };
  multiply_pairs<F, kTokens>(job, in, segment, place, row_of, tokens, all_sums, &spare);
}

}  // namespace chaski
