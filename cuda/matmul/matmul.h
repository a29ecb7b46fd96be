// What the files of matmul and gated_matmul share: the job of one launch and what becomes of its
// sums.
#pragma once
#include "cuda/rows/norm_row.h"
#include "cuda/table.h"
#include "quant/formats.h"

namespace chaski {

// Formats whose weights are multiplied one by one (fma_dot.cuh), not by tensor cores.
template <class F>
constexpr bool kByFma = kScaledFloat<F> || std::is_same_v<F, F32>;

constexpr int kPairRows = 2 * kStrip;  // a warp's rows: a pair of strips

// What becomes of the sums of a decode step's q, k and v if its kv_write is done in passing:
// rotated, and the keys and values stored.
enum class HeadRole { none, query, key, value };
struct HeadStore {
  KvState kv;
  DeviceBatch batch;
  const float* angles = nullptr;
  int dim = 0;
};

// One weight, all of it.
struct MatMulPart {
  const std::byte* weight = nullptr;
  int64_t strip_bytes = 0, rows = 0;
  float* out = nullptr;         // (tokens, rows)
  const float* bias = nullptr;  // (rows), or null
  // not none: rows are whole heads, heads whole pairs, and the token is the only one
  HeadRole role = HeadRole::none;

  __host__ __device__ int64_t strips() const { return (rows + kStrip - 1) / kStrip; }
  __host__ __device__ int64_t pairs() const { return (rows + kPairRows - 1) / kPairRows; }
};

// Weights of one format that share x. Plain: the pairs of all parts, one after another. Gated: pair
// p of part 0, the gate, goes with pair p of part 1, and act(gate) * up is written to part[0].out
// and / or, quantized, to out_acts.
struct MatMulJob {
  MatMulPart part[3];
  int parts = 1;
  bool gated = false;
  Activation kind = Activation::silu;
  const float* x = nullptr;  // (tokens, cols), float formats
  ActsView acts;             // the same quantized, block formats
  ActsView out_acts;
  int64_t tokens = 0;
  int cols = 0, blocks = 0;  // blocks of 32 columns
  // one token: x, or acts, are the norm of this row, and in no memory yet
  NormRow norm = {};
  HeadStore store = {};

  __host__ __device__ int matrices() const { return gated ? 2 : 1; }
  __host__ __device__ int64_t pairs() const {
    int64_t n = part[0].pairs();
    for (int i = 1; !gated && i < parts; ++i) n += part[i].pairs();
    return n;
  }
  // For a kernel: part of pair `pair` (counted over all parts, and made its own) as matrix
  // `matrix`.
  __device__ __forceinline__ const MatMulPart& locate(int64_t& pair, int matrix) const {
    if (gated) return part[matrix];
    int i = 0;
    while (i + 1 < parts && pair >= part[i].pairs()) pair -= part[i++].pairs();
    return part[i];
  }
};

// Shared memory of the kernel for few tokens (matmul_rows.cuh): sums[(parity * matrices + matrix) *
// segments + segment][token][row]: one warp adds up a pair while the others are at the next.
template <int kTokens>
struct RowSums {
  static constexpr int kParities = kTokens > 8 ? 1 : 2;
  using Segment = float[kTokens][kPairRows];
  static size_t bytes(int matrices, int segments) {
    return size_t(kParities) * matrices * segments * sizeof(Segment);
  }
};

// and, if it norms its row: acts, partial sums, the row.
__host__ __device__ constexpr size_t normed_bytes(int cols) {
  return size_t(cols + 31) / 32 * sizeof(Act) + sizeof(float) * (32 + size_t(cols));
}

// Starts the kernel for few tokens, `tokens` (1, 8 or 16) at a time (kByFma: 16 is 8), and the one
// for many; false if it does not take the job.
void launch_matmul_rows(Format format, int tokens, const MatMulJob& job, const LaunchContext& c);
bool launch_matmul_tiles(Format format, const MatMulJob& job, const LaunchContext& c);
// Whichever of them is right for the job.
void launch_matmul(Format format, const MatMulJob& job, const LaunchContext& c);

// The two ops; `job` holds what a decode step does in passing, and nothing else yet. Parts that the
// kv_write reads (q, k, v: where the op would have left them) get their roles.
struct StoredHeads {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  float* rotated_q = nullptr;
};
void launch_op(const MatMul& op, const OpArgs& a, MatMulJob job, const StoredHeads& heads,
               const LaunchContext& c);
void launch_op(const GatedMatMul& op, const OpArgs& a, MatMulJob job, const LaunchContext& c);

}  // namespace chaski
