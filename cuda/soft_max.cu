// Row-wise soft-max of scale * x: a warp to a row, whose two halves do the same, so that the sum is
// the CPU's tree of 16.
#include "cuda/math.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

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

}  // namespace

CudaEntry soft_max_entry() { return cuda_entry<SoftMax, SoftMaxKernel>(); }

}  // namespace chaski
