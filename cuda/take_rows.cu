// The rows whose logits are wanted, copied next to each other.
#include "cuda/launch.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

__global__ void take_rows(const float* x, const int32_t* outputs, float* y, int64_t cols) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x;
  if (i < cols) y[blockIdx.x * cols + i] = x[outputs[blockIdx.x] * cols + i];
}

struct TakeRowsKernel {
  static void launch(const TakeRows&, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.in[0].shape.cols;
    chaski::launch(
        "take_rows",
        {dim3(unsigned(a.out[0].shape.rows), unsigned((cols + 255) / 256)), 256, c.stream},
        take_rows, a.in[0].floats(), c.batch.outputs, a.out[0].out_row(0), cols);
  }
};

}  // namespace

CudaEntry take_rows_entry() { return cuda_entry<TakeRows, TakeRowsKernel>(); }

}  // namespace chaski
