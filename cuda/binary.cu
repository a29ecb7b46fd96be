// Elementwise a + b, a * b.
#include "cuda/launch.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

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

}  // namespace

CudaEntry binary_entry() { return cuda_entry<Binary, BinaryKernel>(); }

}  // namespace chaski
