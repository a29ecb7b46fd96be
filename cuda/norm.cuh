// A norm of one row by the threads of a block, with the residual addition in front and the
// quantization of the result behind. norm.cu does rows with it, and the matmul of a decode step the
// one row it reads (matmul_rows.cuh): the same bits.
#pragma once
#include "cuda/math.cuh"
#include "cuda/order.h"
#include "cuda/table.h"

namespace chaski {

struct NormRow {
  // x: null for none at all; r: null without addition; bias: null but for layer norm
  const float *x, *r, *weight, *bias;
  float *y, *sum;  // null where nobody reads
  ActsView acts;   // data null likewise
  int64_t n;
  float eps;
};

inline NormRow norm_row_of(const Norm& op, const OpArgs& a) {
  return {a.in[0].floats(),
          op.adds ? a.in[1].floats() : nullptr,
          op.weight(a).floats(),
          op.kind == Norm::Kind::layer ? op.bias(a).floats() : nullptr,
          a.out[0].out_row(0),
          op.adds ? a.out[1].out_row(0) : nullptr,
          a.acts,
          a.in[0].shape.cols,
          op.eps};
}

// Threads of a row: part of the order of its sums, so the same wherever it is normed. As many as
// multiply it.
inline int norm_threads(int64_t columns) {
  return 32 * segments_of(groups_of(int(columns + 31) / 32));
}

// Sum over the block, in order: lanes by halves, then warps by halves. part: a float to a warp.
__device__ __forceinline__ float block_sum(float x, float* part) {
#pragma unroll
  for (int k = 16; k > 0; k /= 2) x = x + __shfl_xor_sync(kAllLanes, x, k);
  __syncthreads();  // whoever still reads `part` from the last sum is done
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  x = lane < warps ? part[lane] : 0.0f;
#pragma unroll
  for (int k = 16; k > 0; k /= 2) x = x + __shfl_xor_sync(kAllLanes, x, k);
  return x;
}

// Row `at` of a; row: n floats, part: 32, in shared memory. y may be row. A thread's columns are
// threadIdx.x + k * blockDim.x, so that a warp meets whole blocks of 32. What others wrote to y and
// acts is visible after the next barrier.
__device__ __forceinline__ void norm_row(const NormRow& a, int64_t at, float* row, float* part) {
  const int64_t n = a.n, first = at * n;
  float total = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    float x = a.x[first + i];
    if (a.r) x = x + a.r[first + i];
    if (a.sum) a.sum[first + i] = x;
    row[i] = x;
    total = a.bias ? total + x : fmaf(x, x, total);
  }
  total = block_sum(total, part);
  float mean = 0;
  if (a.bias) {
    mean = total / float(n);
    total = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      total = fmaf(row[i] - mean, row[i] - mean, total);
    total = block_sum(total, part);
  }
  const float variance = total / float(n);
  const float scale = variance < INFINITY ? 1.0f / __fsqrt_rn(variance + a.eps) : NAN;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    float y = (row[i] - mean) * scale * a.weight[i];
    if (a.bias) y = y + a.bias[i];
    if (a.y) a.y[first + i] = y;
    // then n is a multiple of 32, and the warp is whole
    if (a.acts.data) quantize_block(y, &a.acts.at(at, i / 32));
  }
}

}  // namespace chaski
