// Norms, a block to a row, which lies in shared memory between the passes. The sums are over many
// threads in a fixed tree of their own, which depends on the row's length alone (the CPU's tree of
// 16 would be a chain of n / 16 fma).
#include "cuda/norm.cuh"

namespace chaski {
namespace {

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

CudaEntry norm_entry() { return cuda_entry<Norm, NormKernel>(); }

}  // namespace chaski
