// The norm of one row by the threads of a block, with the residual addition before it and the
// quantization of the result after it. pointwise.cu norms rows with it, and the matmul of a decode
// step its one row (matmul_rows.cuh), with the same bits.
#pragma once
#include "cuda/device/math.cuh"
#include "cuda/rows/norm_row.h"

namespace chaski {

// Sums over the block in a fixed order: lanes by halves, then warps by halves. part: a float for
// each warp.
__device__ __forceinline__ float block_sum(float x, float* part) {
#pragma unroll
  for (int k = 16; k > 0; k /= 2) x = x + __shfl_xor_sync(kAllLanes, x, k);
  __syncthreads();  // `part` may still be read for the previous sum
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  x = lane < warps ? part[lane] : 0.0f;
#pragma unroll
  for (int k = 16; k > 0; k /= 2) x = x + __shfl_xor_sync(kAllLanes, x, k);
  return x;
}

// Columns of a thread that are loaded before the first of them is used.
constexpr int kNormAhead = 8;

// Calls use(column, loaded) for the thread's columns in order. load(column) returns what use()
// needs from memory.
template <class Load, class Use>
__device__ __forceinline__ void each_column(int64_t n, Load load, Use use) {
  for (int64_t first = threadIdx.x; first < n; first += kNormAhead * blockDim.x) {
    decltype(load(first)) loaded[kNormAhead];
#pragma unroll
    for (int k = 0; k < kNormAhead; ++k)
      if (const int64_t i = first + k * blockDim.x; i < n) loaded[k] = load(i);
#pragma unroll
    for (int k = 0; k < kNormAhead; ++k)
      if (const int64_t i = first + k * blockDim.x; i < n) use(i, loaded[k]);
  }
}

// Asks for the weights of a norm. They are constant, so a kernel may do so before it waits for the
// previous one.
__device__ __forceinline__ void prefetch_norm(const NormRow& a) {
  for (int64_t i = threadIdx.x * 32; i < a.n * a.weights; i += blockDim.x * 32) {
    prefetch_l2(a.weight + i);
    if (a.bias) prefetch_l2(a.bias + i);
  }
}

// Norms row `at` of a. Shared memory: row has n floats and may be y, part has 32. A thread's
// columns are threadIdx.x + k * blockDim.x, so a warp always has whole blocks of 32. What other
// threads wrote to y and acts is visible after the next barrier.
__device__ __forceinline__ void norm_row(const NormRow& a, int64_t at, float* row, float* part) {
  const int64_t n = a.n, first = at * n, own = at % a.weights * n;
  float total = 0;
  each_column(
      n,
      [&](int64_t i) {
        return float2{a.x[first + i], a.r ? a.r[first + i] : 0.0f};
      },
      [&](int64_t i, const float2& in) {
        const float x = a.r ? in.x + in.y : in.x;
        if (a.sum) a.sum[first + i] = x;
        row[i] = x;
        total = a.bias ? total + x : fmaf(x, x, total);
      });
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
  each_column(
      n,
      [&](int64_t i) {
        return float2{a.weight[own + i], a.bias ? a.bias[own + i] : 0.0f};
      },
      [&](int64_t i, const float2& w) {
        float y = (row[i] - mean) * scale * w.x;
        if (a.bias) y = y + w.y;
        if (a.y) a.y[first + i] = y;
        // If acts are wanted, n is a multiple of 32 and all lanes of the warp are active.
        if (a.acts.data) quantize_block(y, &a.acts.at(at, i / 32));
      });
}

}  // namespace chaski
