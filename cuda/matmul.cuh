// What matmul.cu and gated_matmul.cu share: the job of one launch and what becomes of its sums.
#pragma once
#include "cuda/math.cuh"
#include "cuda/table.h"

namespace chaski {

constexpr int kPairRows = 2 * kStrip;  // a warp's rows: a pair of strips

// One weight, all of it.
struct MatMulPart {
  const std::byte* weight = nullptr;
  int64_t strip_bytes = 0, rows = 0;
  float* out = nullptr;         // (tokens, rows)
  const float* bias = nullptr;  // (rows), or null

  __host__ __device__ int64_t strips() const { return (rows + kStrip - 1) / kStrip; }
  __host__ __device__ int64_t pairs() const { return (rows + kPairRows - 1) / kPairRows; }
};

// Weights of one format that share x. Plain: the pairs of all parts, one after another. Gated: pair p of part 0, the gate, goes with pair
// p of part 1, and act(gate) * up is written to part[0].out and / or, quantized, to out_acts.
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

  __host__ __device__ int matrices() const { return gated ? 2 : 1; }
  __host__ __device__ int64_t pairs() const {
    int64_t n = part[0].pairs();
    for (int i = 1; !gated && i < parts; ++i) n += part[i].pairs();
    return n;
  }
  // Part of pair `pair` (counted over all parts, and made its own) as matrix `matrix`.
  __device__ __forceinline__ const MatMulPart& locate(int64_t& pair, int matrix) const {
    if (gated) return part[matrix];
    int i = 0;
    while (i + 1 < parts && pair >= part[i].pairs()) pair -= part[i++].pairs();
    return part[i];
  }
};

// One warp: the sums of token t and row `lane` of a pair, to where they are wanted. gate and up: of the gated form.
__device__ __forceinline__ void write_plain(const MatMulPart& part, int64_t pair, int64_t t, float sum) {
  const int64_t row = pair * kPairRows + threadIdx.x % 32;
  if (row >= part.rows) return;
  if (part.bias) sum = sum + part.bias[row];
  part.out[t * part.rows + row] = sum;
}
__device__ __forceinline__ void write_gated(const MatMulJob& job, int64_t pair, int64_t t, float gate, float up) {
  const MatMulPart& part = job.part[0];
  const int64_t row = pair * kPairRows + threadIdx.x % 32;
  const float h = activate_fixed(job.kind, gate) * up;
  if (part.out && row < part.rows) part.out[t * part.rows + row] = h;
  if (job.out_acts.data) quantize_block(h, &job.out_acts.at(t, pair));  // then rows are a multiple of 32
}

// Starts the kernels of matmul.cu for one format.
void launch_matmul(Format format, const MatMulJob& job, const LaunchContext& c);

}  // namespace chaski
