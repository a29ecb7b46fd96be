// Elementwise silu and gelu, with the CPU's polynomials (cuda/math.cuh).
#include "cuda/math.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

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

}  // namespace

CudaEntry unary_entry() { return cuda_entry<Unary, UnaryKernel>(); }

}  // namespace chaski
