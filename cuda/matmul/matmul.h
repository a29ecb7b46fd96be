// What the files of matmul and gated_matmul share: the job of one launch, and what happens to its
// sums.
#pragma once
#include "cuda/rows/norm_row.h"
#include "cuda/table.h"
#include "quant/formats.h"

namespace chaski {

// Formats whose weights are multiplied by fma (fma_dot.cuh), not by tensor cores.
template <class F>
constexpr bool kByFma = kScaledFloat<F> || std::is_same_v<F, F32>;

constexpr int kPairRows = 2 * kStrip;  // the rows of a warp: a pair of strips

// What happens to the sums of q, k and v in a decode step whose kv_write is fused into the matmul:
// q and k are rotated, keys and values are stored.
enum class HeadRole { none, query, key, value };
struct HeadStore {
  KvState kv;
  DeviceBatch batch;
  const float* angles = nullptr;
  int dim = 0;
};

// One whole weight.
struct MatMulPart {
  const std::byte* weight = nullptr;
  int64_t strip_bytes = 0, rows = 0;
  float* out = nullptr;         // (tokens, rows)
  const float* bias = nullptr;  // (rows), or null
  // If not `none`: rows are whole heads, heads are whole pairs, and there is only one token.
  HeadRole role = HeadRole::none;

  __host__ __device__ int64_t strips() const { return (rows + kStrip - 1) / kStrip; }
  __host__ __device__ int64_t pairs() const { return (rows + kPairRows - 1) / kPairRows; }
};

// Weights of one format that share x. Plain: the pairs of all parts, one after another. Gated: part
// 0 is the gate and part 1 is up. Pair p of one goes with pair p of the other, and act(gate) * up
// is written to part[0].out, quantized to out_acts, or both.
struct MatMulJob {
  MatMulPart part[3];
  int parts = 1;
  bool gated = false;
  Activation kind = Activation::silu;
  bool clamped = false;      // gpt-oss's gate instead of the activation
  const float* x = nullptr;  // (tokens, cols), float formats
  ActsView acts;             // the same quantized, for block formats
  ActsView out_acts;
  int64_t tokens = 0;
  int cols = 0, blocks = 0;  // blocks of 32 columns
  // If set, there is one token: x, or acts, is the norm of this row and not yet in memory.
  NormRow norm = {};
  HeadStore store = {};

  __host__ __device__ int matrices() const { return gated ? 2 : 1; }
  __host__ __device__ int64_t pairs() const {
    int64_t n = part[0].pairs();
    for (int i = 1; !gated && i < parts; ++i) n += part[i].pairs();
    return n;
  }
  // For kernels: returns the part with pair `pair` for matrix `matrix`. `pair` counts over all
  // parts; it is changed to count within the part.
  __device__ __forceinline__ const MatMulPart& locate(int64_t& pair, int matrix) const {
    if (gated) return part[matrix];
    int i = 0;
    while (i + 1 < parts && pair >= part[i].pairs()) pair -= part[i++].pairs();
    return part[i];
  }
};

// Shared memory of the kernel for few tokens (matmul_rows.cuh), sums[(parity * matrices + matrix) *
// segments + segment][token][row]. With two parities, one warp adds up a pair while the others
// compute the next pair.
template <int kTokens>
struct RowSums {
  static constexpr int kParities = kTokens > 8 ? 1 : 2;
  using Segment = float[kTokens][kPairRows];
  static size_t bytes(int matrices, int segments) {
    return size_t(kParities) * matrices * segments * sizeof(Segment);
  }
};

// Further shared memory if the kernel norms its row: acts, partial sums, the row.
__host__ __device__ constexpr size_t normed_bytes(int cols) {
  return size_t(cols + 31) / 32 * sizeof(Act) + sizeof(float) * (32 + size_t(cols));
}

// launch_matmul_rows starts the kernel for few tokens; `tokens` (1, 8 or 16) is the number a block
// takes (8 instead of 16 with kByFma). launch_matmul_tiles starts the kernel for many tokens, or
// returns false if it cannot do the job.
void launch_matmul_rows(Format format, int tokens, const MatMulJob& job, const LaunchContext& c);
bool launch_matmul_tiles(Format format, const MatMulJob& job, const LaunchContext& c);
// Whether the kernel for many tokens is faster.
bool prefers_tiles(Format format, const MatMulJob& job, const LaunchContext& c);
// Starts the kernel that suits the job.
void launch_matmul(Format format, const MatMulJob& job, const LaunchContext& c);

// Launch the two ops. `job` holds the steps fused into the matmul, and nothing else. If a kv_write
// is fused, the parts that it reads get their roles. `heads` says where the unfused op would have
// written q, k and v.
struct StoredHeads {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  float* rotated_q = nullptr;
};
void launch_op(const MatMul& op, const OpArgs& a, MatMulJob job, const StoredHeads& heads,
               const LaunchContext& c);
void launch_op(const GatedMatMul& op, const OpArgs& a, MatMulJob job, const LaunchContext& c);

}  // namespace chaski
