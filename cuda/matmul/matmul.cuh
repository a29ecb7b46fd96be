// What the kernels of matmul and gated_matmul do with the sums of a job (matmul.h).
#pragma once
#include "cuda/matmul/matmul.h"
#include "cuda/rows/kv_store.cuh"
#include "cuda/rows/norm.cuh"

namespace chaski {

// One warp writes the sums of token t for a pair of strips: lane i writes row i of the pair. The
// gated form takes two sums, one of the gate rows and one of the up rows. biases: where those of an
// expert begin.
__device__ __forceinline__ void write_plain(const MatMulPart& part, int64_t pair, int64_t t,
                                            float sum, int64_t biases = 0) {
  const int64_t row = pair * kPairRows + threadIdx.x % 32;
  if (row >= part.rows) return;
  if (part.bias) sum = sum + part.bias[biases + row];
  part.out[t * part.rows + row] = sum;
}
__device__ __forceinline__ void write_gated(const MatMulJob& job, int64_t pair, int64_t t,
                                            float gate, float up, int64_t biases = 0) {
  const MatMulPart& part = job.part[0];
  const int64_t row = pair * kPairRows + threadIdx.x % 32;
  if (part.bias && row < part.rows)
    gate = gate + part.bias[biases + row], up = up + job.part[1].bias[biases + row];
  const float h = job.clamped ? clamped_swiglu(gate, up) : activate_fixed(job.kind, gate) * up;
  if (part.out && row < part.rows) part.out[t * part.rows + row] = h;
  // If out_acts are wanted, rows are a multiple of 32.
  if (job.out_acts.data) quantize_block(h, &job.out_acts.at(t, pair));
}

// Writes row `lane` of a pair for the only token. spare: shared memory of this warp.
__device__ __forceinline__ void write_heads(const MatMulJob& job, const MatMulPart& part,
                                            int64_t pair, float sum, Act* spare) {
  const KvState& kv = job.store.kv;
  const int64_t row = pair * kPairRows;
  const int width = part.role == HeadRole::value ? kv.v_dim : kv.k_dim;
  const int head = int(row / width), first = int(row % width), c = first + int(threadIdx.x % 32);
  const int position = job.store.batch.positions[0];
  if (part.bias) sum = sum + part.bias[row + threadIdx.x % 32];
  if (part.role != HeadRole::value)
    sum =
        rotate_channel(sum, c, job.store.angles + int64_t(position) * job.store.dim, job.store.dim);
  if (part.role == HeadRole::query)
    part.out[row + threadIdx.x % 32] = sum;
  else
    for (const Store* to = kv.stores(); to < kv.stores_end(); ++to)
      store_channels(kv, KvSlot(kv, *to, head), first, sum, part.role == HeadRole::key, spare);
}

}  // namespace chaski
