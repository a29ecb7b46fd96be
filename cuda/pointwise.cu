// The ops that go over a row value by value, in one file: a file costs nvcc more than its ops do.
#include "cuda/entry.h"
#include "cuda/math.cuh"
#include "cuda/norm.cuh"

namespace chaski {
namespace {

// Elementwise a + b, a * b.

__global__ void binary(Binary::Kind kind, const float* a, const float* b, float* y, int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = kind == Binary::Kind::add ? a[i] + b[i] : a[i] * b[i];
}

struct BinaryKernel {
  static void launch(const Binary& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("binary", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, binary, op.kind,
                   a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0), n);
  }
};

// Elementwise silu and gelu, with the CPU's polynomials (cuda/math.cuh).

__global__ void unary(Activation kind, const float* x, float* y, int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = activate_fixed(kind, x[i]);
}

struct UnaryKernel {
  static void launch(const Unary& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("unary", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, unary, op.kind,
                   a.in[0].floats(), a.out[0].out_row(0), n);
  }
};

// Row-wise soft-max of scale * x: a warp to a row, whose two halves do the same, so that the sum is
// the CPU's tree of 16.

__global__ void soft_max(const float* x, float* y, int64_t n, float scale) {
  wait_for_previous();
  start_next();
  x += blockIdx.x * n, y += blockIdx.x * n;
  const int lane = threadIdx.x % 16;
  float most = -INFINITY, sum = 0;
  for (int64_t i = lane; i < n; i += 16) most = x[i] * scale > most ? x[i] * scale : most;
  most = tree_max(most);
  for (int64_t i = lane; i < n; i += 16) sum += exp_fixed(x[i] * scale - most);
  sum = tree_sum(sum);
  for (int64_t i = threadIdx.x; i < n; i += 32) y[i] = exp_fixed(x[i] * scale - most) / sum;
}

struct SoftMaxKernel {
  static void launch(const SoftMax& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("soft_max", {dim3(unsigned(a.in[0].shape.rows)), 32, c.stream}, soft_max,
                   a.in[0].floats(), a.out[0].out_row(0), a.in[0].shape.cols, op.scale);
  }
};

// Norms, a block to a row, which lies in shared memory between the passes. The sums are over many
// threads in a fixed tree of their own, which depends on the row's length alone (the CPU's tree of
// 16 would be a chain of n / 16 fma).

__global__ void __launch_bounds__(32 * kMostSegments) norm(NormRow a) {
  __shared__ float part[32];
  for (int64_t i = threadIdx.x * 32; i < a.n; i += blockDim.x * 32) {
    prefetch_l2(a.weight + i);
    if (a.bias) prefetch_l2(a.bias + i);
  }
  wait_for_previous();
  start_next();
  norm_row(a, blockIdx.x, dynamic_shared<float>(), part);
}

struct NormKernel {
  static constexpr int64_t kMostColumns = 48 * 1024;  // shared memory
  static bool supports(const Norm&, const OpArgs& a) { return a.in[0].shape.cols <= kMostColumns; }
  static void launch(const Norm& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.cols;
    chaski::launch(
        "norm",
        {dim3(unsigned(a.in[0].shape.rows)), norm_threads(n), c.stream, size_t(n) * sizeof(float)},
        norm, norm_row_of(op, a));
  }
};

}  // namespace

template <>
struct CudaKernel<Binary> : BinaryKernel {};
template CudaEntry cuda_entry<Binary>();
template <>
struct CudaKernel<Unary> : UnaryKernel {};
template CudaEntry cuda_entry<Unary>();
template <>
struct CudaKernel<SoftMax> : SoftMaxKernel {};
template CudaEntry cuda_entry<SoftMax>();
template <>
struct CudaKernel<Norm> : NormKernel {};
template CudaEntry cuda_entry<Norm>();

}  // namespace chaski
