// Rotary embedding on its own (kv_write, or the matmul in front, does it in passing where it can):
// a block to a head of a token.
#include "cuda/kv_store.cuh"

namespace chaski {
namespace {

constexpr int kThreads = 64;

__global__ void rope(const float* x, float* y, const float* angles, const int32_t* positions,
                     int head_dim, int dim) {
  wait_for_previous();
  start_next();
  const int64_t token = blockIdx.x, at = (token * gridDim.y + blockIdx.y) * head_dim;
  for (int first = 0; first < head_dim; first += kThreads) {  // whole warps
    const int c = first + threadIdx.x;
    const float turned = rotate_channel(c < head_dim ? x[at + c] : 0.0f, c,
                                        angles + int64_t(positions[token]) * dim, dim);
    if (c < head_dim) y[at + c] = turned;
  }
}

struct RopeKernel {
  static bool supports(const Rope& op, const OpArgs&) { return op.spec < kMostRopes; }
  static void launch(const Rope& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("rope",
                   {dim3(unsigned(a.in[0].shape.rows), unsigned(op.heads)), kThreads, c.stream},
                   rope, a.in[0].floats(), a.out[0].out_row(0), c.batch.ropes[op.spec],
                   c.batch.positions, op.head_dim, op.dim);
  }
};

}  // namespace

CudaEntry rope_entry() { return cuda_entry<Rope, RopeKernel>(); }

}  // namespace chaski
