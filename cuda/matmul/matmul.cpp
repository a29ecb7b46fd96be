// Matmul on the device: chooses the kernel by the number of tokens. The choice changes the time,
// but no bit of the result (order.h).
#include "cuda/matmul/matmul.h"

#include <algorithm>

#include "cuda/entry.h"

namespace chaski {
namespace {

// From this number of tokens on the tile kernel runs. With fewer, its blocks of 128 tokens would be
// mostly empty.
constexpr int64_t kTileTokens = 65;

}  // namespace

void launch_matmul(Format format, const MatMulJob& job, const LaunchContext& c) {
  if (job.tokens <= 8)
    launch_matmul_rows(format, job.tokens == 1 ? 1 : 8, job, c);
  else if (job.tokens < kTileTokens || !launch_matmul_tiles(format, job, c))
    launch_matmul_rows(format, 16, job, c);
}

namespace {

void give_role(MatMulPart& part, const StoredHeads& heads) {
  if (!heads.q) return;
  part.role = part.out == heads.q   ? HeadRole::query
              : part.out == heads.k ? HeadRole::key
                                    : HeadRole::value;
  if (part.role == HeadRole::query) part.out = heads.rotated_q;
}

}  // namespace

void launch_op(const MatMul& op, const OpArgs& a, MatMulJob job, const StoredHeads& heads,
               const LaunchContext& c) {
  job.x = a.in[0].floats(), job.acts = a.in_acts, job.tokens = a.in[0].shape.rows;
  job.cols = int(a.in[0].shape.cols), job.blocks = (job.cols + 31) / 32;
  // neighbouring weights of one format share a launch
  for (int first = 0, last; first < op.weights; first = last) {
    const Format format = a.in[1 + first].format;
    for (last = first; last < op.weights && a.in[1 + last].format == format; ++last) {
      const Operand& w = a.in[1 + last];
      MatMulPart& part = job.part[last - first];
      part = {w.bytes(), int64_t(strip_bytes(format, w.shape.cols)), w.shape.rows,
              a.out[last].out_row(0), op.bias ? a.in[1 + op.weights + last].floats() : nullptr};
      give_role(part, heads);
    }
    job.parts = last - first;
    launch_matmul(format, job, c);
    job.norm.sum = nullptr;  // only the first launch writes the sum
  }
}

namespace {

struct MatMulKernel {
  static void launch(const MatMul& op, const OpArgs& a, const LaunchContext& c) {
    launch_op(op, a, {}, {}, c);
  }
};

}  // namespace

template <>
struct CudaKernel<MatMul> : MatMulKernel {};
template CudaEntry cuda_entry<MatMul>();

}  // namespace chaski
