// The rotation of one head, by the threads of a block; the order of operations is Rope::pair's.
#pragma once
#include "cuda/launch.cuh"

namespace chaski {

// y may be x. angles: cos, sin of each pair at the position of the token.
__device__ __forceinline__ void rotate_head(const float* x, float* y, const float* angles, int head_dim, int dim) {
  for (int i = 2 * threadIdx.x; i < dim; i += 2 * blockDim.x) {
    const float x0 = x[i], x1 = x[i + 1], cos = angles[i], sin = angles[i + 1];
    y[i] = fmaf(x0, cos, -(x1 * sin));
    y[i + 1] = fmaf(x0, sin, x1 * cos);
  }
  if (y != x)
    for (int i = dim + threadIdx.x; i < head_dim; i += blockDim.x) y[i] = x[i];
}

// Threads for a head: a pair each, in whole warps.
inline int head_threads(int head_dim) {
  const int threads = (head_dim / 2 + 31) / 32 * 32;
  return threads < 32 ? 32 : threads > 256 ? 256 : threads;
}

}  // namespace chaski
