// Rotary embedding on its own (kv_write does it in passing where it can): a block to a head of a token.
#include "cuda/rope.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

__global__ void rope(const float* x, float* y, const float* angles, const int32_t* positions, int head_dim, int dim) {
  wait_for_previous();
  start_next();
  const int64_t token = blockIdx.x, at = (token * gridDim.y + blockIdx.y) * head_dim;
  rotate_head(x + at, y + at, angles + int64_t(positions[token]) * dim, head_dim, dim);
}

struct RopeKernel {
  static bool supports(const Rope& op, const OpArgs&) { return op.spec < kMostRopes; }
  static void launch(const Rope& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("rope", {dim3(unsigned(a.in[0].shape.rows), unsigned(op.heads)), head_threads(op.head_dim), c.stream}, rope,
                   a.in[0].floats(), a.out[0].out_row(0), c.batch.ropes[op.spec], c.batch.positions, op.head_dim, op.dim);
  }
};

}  // namespace

CudaEntry rope_entry() { return cuda_entry<Rope, RopeKernel>(); }

}  // namespace chaski
