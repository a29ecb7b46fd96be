// Norms, with the residual addition in front and the quantization of the result behind, in one block per row. The row lies in shared
// memory between the passes. A decode step has one row: it is latency, not bytes, that this kernel is about, so the sums are over many
// threads in a fixed tree of their own, which depends on the row's length alone (the CPU's tree of 16 would be a chain of n / 16 fma).
#include "cuda/math.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

constexpr int kMostThreads = 1024;

struct NormRow {
  const float *x, *r, *weight, *bias;  // r: null without addition; bias: null but for layer norm
  float *y, *sum;                      // null where nobody reads
  ActsView acts;                       // data null likewise
  int64_t n;
  float eps;
};

// Sum over the block, in order: lanes by halves, then warps by halves. part: a float to a warp.
__device__ float block_sum(float x, float* part) {
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

// Threads are whole warps and a thread's columns are threadIdx.x + k * blockDim.x, so that a warp meets whole blocks of 32.
__global__ void __launch_bounds__(kMostThreads) norm(NormRow a) {
  __shared__ float part[32];
  float* row = dynamic_shared<float>();
  const int64_t at = blockIdx.x * a.n, n = a.n;
  for (int64_t i = threadIdx.x * 32; i < n; i += blockDim.x * 32) {
    prefetch_l2(a.weight + i);
    if (a.bias) prefetch_l2(a.bias + i);
  }
  wait_for_previous();
  start_next();

  float total = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    float x = a.x[at + i];
    if (a.r) x = x + a.r[at + i];
    if (a.sum) a.sum[at + i] = x;
    row[i] = x;
    total = a.bias ? total + x : fmaf(x, x, total);
  }
  total = block_sum(total, part);
  float mean = 0;
  if (a.bias) {
    mean = total / float(n);
    total = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) total = fmaf(row[i] - mean, row[i] - mean, total);
    total = block_sum(total, part);
  }
  const float scale = 1.0f / __fsqrt_rn(total / float(n) + a.eps);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    float y = (row[i] - mean) * scale * a.weight[i];
    if (a.bias) y = y + a.bias[i];
    if (a.y) a.y[at + i] = y;
    if (a.acts.data) quantize_block(y, &a.acts.at(blockIdx.x, i / 32));  // then n is a multiple of 32, and the warp is whole
  }
}

struct NormKernel {
  static constexpr int64_t kMostColumns = 48 * 1024;  // shared memory
  static bool supports(const Norm&, const OpArgs& a) { return a.in[0].shape.cols <= kMostColumns; }
  static void launch(const Norm& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.cols;
    const int warps = int((n / 4 + 31) / 32);  // about four columns to a thread
    const int threads = 32 * (warps < 1 ? 1 : warps > kMostThreads / 32 ? kMostThreads / 32 : warps);
    const NormRow row{a.in[0].floats(), op.adds ? a.in[1].floats() : nullptr, op.weight(a).floats(),
                      op.kind == Norm::Kind::layer ? op.bias(a).floats() : nullptr, a.out[0].out_row(0),
                      op.adds ? a.out[1].out_row(0) : nullptr, a.acts, n, op.eps};
    chaski::launch("norm", {dim3(unsigned(a.in[0].shape.rows)), threads, c.stream, size_t(n) * sizeof(float)}, norm, row);
  }
};

}  // namespace

CudaEntry norm_entry() { return cuda_entry<Norm, NormKernel>(); }

}  // namespace chaski
