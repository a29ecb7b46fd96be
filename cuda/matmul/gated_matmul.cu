// act(x Wg^T) * (x Wu^T) by the kernels of matmul, with two weights at a time. If the two weights
// differ in format, which files rarely have, they are multiplied one after the other into scratch
// memory and joined there.
#include "cuda/entry.h"
#include "cuda/matmul/matmul.cuh"

namespace chaski {
namespace {

// One warp joins 32 rows of a token.
__global__ void join(MatMulJob job, const float* gate, const float* up) {
  wait_for_previous();
  start_next();
  const int64_t row = int64_t(blockIdx.y) * kPairRows + threadIdx.x, rows = job.part[0].rows,
                at = blockIdx.x * rows + row;
  write_gated(job, blockIdx.y, blockIdx.x, row < rows ? gate[at] : 0.0f,
              row < rows ? up[at] : 0.0f);
}

}  // namespace

void launch_op(const GatedMatMul& op, const OpArgs& a, MatMulJob job, const LaunchContext& c) {
  job.x = a.in[0].floats(), job.acts = a.in_acts, job.out_acts = a.acts,
  job.tokens = a.in[0].shape.rows;
  job.cols = int(a.in[0].shape.cols), job.blocks = (job.cols + 31) / 32;
  job.gated = true, job.kind = op.kind;
  for (int i = 0; i < 2; ++i) {
    const Operand& w = a.in[1 + i];
    job.part[i] = {w.bytes(), int64_t(strip_bytes(w.format, w.shape.cols)), w.shape.rows,
                   a.out[0].out_row(0), nullptr};
  }
  if (a.in[1].format == a.in[2].format) return launch_matmul(a.in[1].format, job, c);

  auto* products = reinterpret_cast<float*>(c.scratch);
  const int64_t n = job.tokens * job.part[0].rows;
  for (int i = 0; i < 2; ++i) {
    MatMulJob alone = job;
    alone.gated = false, alone.part[0] = job.part[i], alone.part[0].out = products + i * n;
    if (i > 0) alone.norm.sum = nullptr;
    launch_matmul(a.in[1 + i].format, alone, c);
  }
  chaski::launch("gated_matmul",
                 {dim3(unsigned(job.tokens), unsigned(job.part[0].pairs())), 32, c.stream}, join,
                 job, (const float*)products, (const float*)products + n);
}

namespace {

struct GatedMatMulKernel {
  static size_t scratch(const GatedMatMul&, const OpArgs& a, int) {
    if (a.in[1].format == a.in[2].format) return 0;
    return size_t(2 * a.in[0].shape.rows * a.in[1].shape.rows) * sizeof(float);
  }
  static void launch(const GatedMatMul& op, const OpArgs& a, const LaunchContext& c) {
    launch_op(op, a, {}, c);
  }
};

}  // namespace

template <>
struct CudaKernel<GatedMatMul> : GatedMatMulKernel {};
template CudaEntry cuda_entry<GatedMatMul>();

}  // namespace chaski
