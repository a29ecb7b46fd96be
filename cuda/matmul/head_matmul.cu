// A matmul of each head's slice of x by the head's own matrix. It runs the kernel for one token
// (matmul_rows.cuh) for each token and head, like expert_matmul.cu. The bits are those of matmul.
#include <algorithm>

#include "cuda/entry.h"
#include "cuda/matmul/matmul_rows.cuh"
#include "ggml-like-tensor/ops/head_matmul.h"
#include "quant/formats.h"

namespace chaski {
namespace {

struct HeadArgs {
  MatMulJob job;  // for head 0 and token 0
  int64_t head_bytes;
  int heads;
};

// Grid: (1, blocks that share the pairs of strips, tokens * heads).
template <class F>
__global__ void __launch_bounds__(32 * kMostSegments, 1) head_rows(HeadArgs a) {
  using Sums = RowSums<1>;
  auto* all_sums = dynamic_shared<typename Sums::Segment>();
  wait_for_previous();
  start_next();
  const int64_t row = blockIdx.z, token = row / a.heads, head = row % a.heads;
  RowInput in{F::kFloat ? a.job.x + row * a.job.cols : nullptr, nullptr};
  if constexpr (!F::kFloat) {
    auto* acts = reinterpret_cast<Act*>(all_sums + Sums::kParities * int(blockDim.x) / 32);
    constexpr int kWords = sizeof(Act) / sizeof(uint4);
    for (int i = threadIdx.x; i < a.job.blocks * kWords; i += blockDim.x)
      reinterpret_cast<uint4*>(acts + i / kWords)[i % kWords] = reinterpret_cast<const uint4*>(
          &a.job.acts.at(token, head * a.job.blocks + i / kWords))[i % kWords];
    __syncthreads();
    in.acts = acts;
  }
  SegmentOf<F, 1> segment(a.job, this_warp());
  Place place(a.job);
  place.weight_bytes = head * a.head_bytes;
  segment.begin(a.job, place);
  multiply_pairs<F, 1>(
      a.job, in, segment, place, [row](int) { return row; }, 1, all_sums, nullptr);
}

struct HeadMatMulKernel {
  static size_t shared_bytes(const OpArgs& a) {
    const int blocks = int(a.in[1].shape.cols + 31) / 32;
    return RowSums<1>::bytes(1, segments_of(groups_of(blocks))) + size_t(blocks) * sizeof(Act);
  }
  static bool supports(const HeadMatMul& op, const OpArgs& a) {
    return shared_bytes(a) <= 48 * 1024 && a.in[0].shape.rows * op.heads < 65536;
  }
  static void launch(const HeadMatMul& op, const OpArgs& a, const LaunchContext& c) {
    const Operand& w = a.in[1];
    const int64_t rows = a.in[0].shape.rows * op.heads;
    HeadArgs args{{}, 0, op.heads};
    MatMulJob& job = args.job;
    job.x = a.in[0].floats(), job.acts = a.in_acts, job.tokens = 1;
    job.cols = int(w.shape.cols), job.blocks = (job.cols + 31) / 32;
    job.part[0] = {w.bytes(), int64_t(strip_bytes(w.format, w.shape.cols)), op.outputs(a),
                   a.out[0].out_row(0), nullptr};
    args.head_bytes = job.part[0].strips() * job.part[0].strip_bytes;
    const int segments = segments_of(groups_of(job.blocks));
    const int64_t resident = int64_t(c.multiprocessors) * (kMostSegments / segments),
                  blocks = std::min(job.pairs(), std::max<int64_t>(resident / rows, 1));
    with_device_format(w.format, [&]<class F>(F) {
      chaski::launch(
          "head_matmul",
          {dim3(1, unsigned(blocks), unsigned(rows)), 32 * segments, c.stream, shared_bytes(a)},
          head_rows<F>, args);
    });
  }
};

}  // namespace

template <>
struct CudaKernel<HeadMatMul> : HeadMatMulKernel {};
template CudaEntry cuda_entry<HeadMatMul>();

}  // namespace chaski
