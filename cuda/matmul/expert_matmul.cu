// A matmul whose weight is chosen row by row. It runs the kernel for one token (matmul_rows.cuh)
// for each row of the result, with that row's expert. The bits are those of matmul, whose order
// does not depend on the number of tokens (order.h).
//
// This is not fast for prompts: an expert's weights are read once for every row that chose it,
// usually from L2 if there are many.
#include <algorithm>

#include "cuda/entry.h"
#include "cuda/matmul/matmul_rows.cuh"
#include "quant/formats.h"

namespace chaski {
namespace {

struct ExpertArgs {
  MatMulJob job;           // for expert 0 and row 0
  const int32_t* experts;  // the expert of each row
  int64_t expert_bytes;
  int share;  // rows that read the same row of x
};

// Copies a row of quantized activations to shared memory, block after block.
__device__ __forceinline__ void copy_acts(const ActsView& from, int64_t row, Act* to) {
  constexpr int kWords = sizeof(Act) / sizeof(uint4);
  for (int i = threadIdx.x; i < int(from.blocks) * kWords; i += blockDim.x)
    reinterpret_cast<uint4*>(to + i / kWords)[i % kWords] =
        reinterpret_cast<const uint4*>(&from.at(row, i / kWords))[i % kWords];
  __syncthreads();
}

// Grid: (1, blocks that share the pairs of strips, rows).
template <class F>
__global__ void __launch_bounds__(32 * kMostSegments, 1) expert_rows(ExpertArgs a) {
  using Sums = RowSums<1>;
  auto* all_sums = dynamic_shared<typename Sums::Segment>();
  wait_for_previous();
  start_next();
  const int64_t row = blockIdx.z, input = row / a.share;
  MatMulPart& part = a.job.part[0];
  part.weight += a.experts[row] * a.expert_bytes, part.out += row * part.rows;
  RowInput in{F::kFloat ? a.job.x + input * a.job.cols : nullptr, nullptr};
  if constexpr (!F::kFloat) {
    auto* acts = reinterpret_cast<Act*>(all_sums + Sums::kParities * int(blockDim.x) / 32);
    copy_acts(a.job.acts, input, acts);
    in.acts = acts;
  }
  SegmentOf<F, 1> segment(a.job, this_warp());
  Place place(a.job);
  segment.begin(a.job, place);
  multiply_pairs<F, 1>(a.job, in, segment, place, 0, 1, all_sums, nullptr);
}

struct ExpertMatMulKernel {
  static size_t shared_bytes(const OpArgs& a) {
    const int blocks = int(a.in[0].shape.cols + 31) / 32;
    return RowSums<1>::bytes(1, segments_of(groups_of(blocks))) + size_t(blocks) * sizeof(Act);
  }
  static bool supports(const ExpertMatMul&, const OpArgs& a) {
    return shared_bytes(a) <= 48 * 1024 && a.in[2].shape.rows * a.in[2].shape.cols < 65536;
  }
  static void launch(const ExpertMatMul& op, const OpArgs& a, const LaunchContext& c) {
    const Operand& w = a.in[1];
    const int64_t rows = a.out[0].shape.rows, outputs = op.outputs(a);
    ExpertArgs args{{}, a.in[2].ints(0), 0, int(rows / a.in[0].shape.rows)};
    MatMulJob& job = args.job;
    job.x = a.in[0].floats(), job.acts = a.in_acts, job.tokens = 1;
    job.cols = int(a.in[0].shape.cols), job.blocks = (job.cols + 31) / 32;
    job.part[0] = {w.bytes(), int64_t(strip_bytes(w.format, w.shape.cols)), outputs,
                   a.out[0].out_row(0), nullptr};
    args.expert_bytes = job.part[0].strips() * job.part[0].strip_bytes;
    const int segments = segments_of(groups_of(job.blocks));
    const int64_t resident = int64_t(c.multiprocessors) * (kMostSegments / segments),
                  blocks = std::min(job.pairs(), std::max<int64_t>(resident / rows, 1));
    with_device_format(w.format, [&]<class F>(F) {
      chaski::launch(
          "expert_matmul",
          {dim3(1, unsigned(blocks), unsigned(rows)), 32 * segments, c.stream, shared_bytes(a)},
          expert_rows<F>, args);
    });
  }
};

}  // namespace

template <>
struct CudaKernel<ExpertMatMul> : ExpertMatMulKernel {};
template CudaEntry cuda_entry<ExpertMatMul>();

}  // namespace chaski
