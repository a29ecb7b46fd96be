// Matmuls whose weights are chosen row by row, plain and gated. The bits are those of matmul, whose
// order does not depend on the number of tokens (order.h).
//
// With few rows (a decode step) most experts have one row. Each row runs the kernel for one token
// (matmul_rows.cuh) with its expert. With more rows, three kernels run:
//   1. sort_rows lists the rows expert by expert, in tiles of up to 16 rows of one expert.
//   2. copy_rows copies the inputs of each tile next to each other.
//   3. expert_tiles runs the kernel for up to 16 tokens for each tile.
// So an expert's weights are read once for 16 of its rows.
#include <algorithm>

#include "cuda/entry.h"
#include "cuda/matmul/matmul_rows.cuh"
#include "quant/formats.h"

namespace chaski {
namespace {

struct ExpertArgs {
  MatMulJob job;           // for expert 0
  const int32_t* experts;  // the expert of each row
  int64_t expert_bytes;
  int share;  // rows that read the same row of x
};

// Copies a row of quantized activations to shared memory, block after block.
constexpr int kActWords = sizeof(Act) / sizeof(uint4);
__device__ __forceinline__ void copy_acts(const ActsView& from, int64_t row, Act* to) {
  for (int i = threadIdx.x; i < int(from.blocks) * kActWords; i += blockDim.x)
    reinterpret_cast<uint4*>(to + i / kActWords)[i % kActWords] =
        reinterpret_cast<const uint4*>(&from.at(row, i / kActWords))[i % kActWords];
  __syncthreads();
}

__device__ __forceinline__ Place place_of(const ExpertArgs& a, int64_t expert) {
  Place place(a.job);
  place.weight_bytes = expert * a.expert_bytes, place.biases = expert * a.job.part[0].rows;
  return place;
}

// Grid: (1, blocks that share the pairs of strips, rows).
template <class F>
__global__ void __launch_bounds__(32 * kMostSegments, 1) expert_rows(ExpertArgs a) {
  using Sums = RowSums<1>;
  auto* all_sums = dynamic_shared<typename Sums::Segment>();
  wait_for_previous();
  start_next();
  const int64_t row = blockIdx.z, input = row / a.share;
  RowInput in{F::kFloat ? a.job.x + input * a.job.cols : nullptr, nullptr};
  if constexpr (!F::kFloat) {
    auto* acts = reinterpret_cast<Act*>(all_sums +
                                        Sums::kParities * a.job.matrices() * int(blockDim.x) / 32);
    copy_acts(a.job.acts, input, acts);
    in.acts = acts;
  }
  SegmentOf<F, 1> segment(a.job, this_warp());
  Place place = place_of(a, a.experts[row]);
  segment.begin(a.job, place);
  multiply_pairs<F, 1>(
      a.job, in, segment, place, [row](int) { return row; }, 1, all_sums, nullptr);
}

// The rows of a pass, sorted by expert. Places [16 t, 16 t + rows) of tile t have rows of one
// expert. All is in scratch memory.
struct SortedRows {
  int32_t* tiles;    // the number of tiles
  int32_t* expert;   // by tile
  int32_t* of_tile;  // by tile: its rows
  int32_t* row;      // by place
  float* x;          // by place: the inputs, or
  Act* acts;         // the same quantized, in groups of 16 places

  // An expert has less than one tile that is not full.
  static int64_t most_tiles(int64_t rows, int experts) {
    return std::min(rows, rows / kGroup + experts);
  }
  static size_t bytes(int64_t rows, int experts, int64_t cols, bool floats) {
    const auto tiles = size_t(most_tiles(rows, experts));
    return kHead + tiles * (2 + kGroup) * sizeof(int32_t) + 256 +
           tiles * kGroup * size_t(cols) * (floats ? sizeof(float) : sizeof(Act)) /
               (floats ? 1 : 32);
  }
  SortedRows(std::byte* scratch, int64_t rows, int experts, bool floats) {
    const int64_t most = most_tiles(rows, experts);
    tiles = reinterpret_cast<int32_t*>(scratch);
    expert = reinterpret_cast<int32_t*>(scratch + kHead), of_tile = expert + most;
    row = of_tile + most;
    const size_t used = kHead + size_t(most) * (2 + kGroup) * sizeof(int32_t);
    std::byte* const inputs = scratch + (used + 255) / 256 * 256;
    x = floats ? reinterpret_cast<float*>(inputs) : nullptr;
    acts = floats ? nullptr : reinterpret_cast<Act*>(inputs);
  }

 private:
  static constexpr size_t kHead = 256;
};

constexpr int kSortThreads = 256, kMostSorted = 4096;  // experts

// One block. Shared memory: two numbers for each expert.
__global__ void __launch_bounds__(kSortThreads, 1)
    sort_rows(SortedRows to, const int32_t* experts_of, int rows, int experts) {
  auto* count = dynamic_shared<int32_t>();
  int32_t* const next = count + experts;  // the place of the expert's next row
  wait_for_previous();
  start_next();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) count[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < rows; i += blockDim.x) atomicAdd(&count[experts_of[i]], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    int tile = 0;
    for (int e = 0; e < experts; ++e) {
      next[e] = tile * kGroup;
      for (int left = count[e]; left > 0; left -= kGroup, ++tile)
        to.expert[tile] = e, to.of_tile[tile] = left < kGroup ? left : kGroup;
    }
    *to.tiles = tile;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows; i += blockDim.x)
    to.row[atomicAdd(&next[experts_of[i]], 1)] = i;
}

// Grid: (most tiles, 16 rows).
__global__ void __launch_bounds__(128, 1) copy_rows(SortedRows to, ExpertArgs a) {
  wait_for_previous();
  start_next();
  const int tile = blockIdx.x, i = blockIdx.y;
  if (tile >= *to.tiles) return;
  const bool used = i < to.of_tile[tile];
  const int64_t place = int64_t(tile) * kGroup + i, input = used ? to.row[place] / a.share : 0;
  if (to.acts) {
    const ActsView sorted{to.acts, place / kGroup * kGroup + kGroup, a.job.blocks};
    for (int k = threadIdx.x; k < a.job.blocks * kActWords; k += blockDim.x)
      reinterpret_cast<uint4*>(&sorted.at(place, k / kActWords))[k % kActWords] =
          used ? reinterpret_cast<const uint4*>(&a.job.acts.at(input, k / kActWords))[k % kActWords]
               : uint4{0, 0, 0, 0};
  } else {
    for (int c = threadIdx.x; c < a.job.cols; c += blockDim.x)
      to.x[place * a.job.cols + c] = used ? a.job.x[input * a.job.cols + c] : 0.0f;
  }
}

// Grid: (parts of kTokens rows of the most tiles, blocks that share the pairs of strips).
template <class F, int kTokens>
__global__ void __launch_bounds__(32 * kMostSegments, 1)
    expert_tiles(SortedRows rows, ExpertArgs a) {
  using Sums = RowSums<kTokens>;
  auto* all_sums = dynamic_shared<typename Sums::Segment>();
  wait_for_previous();
  start_next();
  const int first = int(blockIdx.x) * kTokens, tile = first / kGroup;
  if (tile >= *rows.tiles) return;
  const int left = rows.of_tile[tile] - first % kGroup;
  if (left <= 0) return;
  SegmentOf<F, kTokens> segment(a.job, this_warp());
  Place place = place_of(a, rows.expert[tile]);
  segment.begin(a.job, place);
  multiply_pairs<F, kTokens>(
      a.job, {a.job.x, a.job.acts.data}, segment, place,
      [row = rows.row + first](int t) { return int64_t(row[t]); }, left < kTokens ? left : kTokens,
      all_sums, nullptr);
}

// In the functions below, `a` has the inputs of ExpertMatMul. In the gated form, the weight and
// bias in it are the gate's.
int64_t rows_of(const OpArgs& a) { return a.in[2].shape.rows * a.in[2].shape.cols; }
// Whether sorting pays off: experts have a row each or more, on average.
bool sorts(const ExpertMatMul& op, const OpArgs& a) {
  return rows_of(a) >= op.experts && op.experts <= kMostSorted;
}
size_t shared_bytes(const OpArgs& a, int matrices) {
  const int blocks = int(a.in[0].shape.cols + 31) / 32;
  return RowSums<1>::bytes(matrices, segments_of(groups_of(blocks))) + size_t(blocks) * sizeof(Act);
}
bool supports_shape(const OpArgs& a, int matrices) {
  return shared_bytes(a, matrices) <= 48 * 1024 && rows_of(a) < 65536;
}
size_t scratch_bytes(const ExpertMatMul& op, const OpArgs& a) {
  if (!sorts(op, a)) return 0;
  return SortedRows::bytes(rows_of(a), op.experts, a.in[0].shape.cols, !reads_acts(a.in[1].format));
}

template <class F, int kTokens>
void launch_tiles(const SortedRows& rows, int64_t most_tiles, const ExpertArgs& args,
                  const LaunchContext& c) {
  const MatMulJob& job = args.job;
  const int segments = segments_of(groups_of(job.blocks));
  const int64_t parts = most_tiles * (kGroup / kTokens),
                resident = int64_t(c.multiprocessors) * (kMostSegments / segments),
                blocks = std::min(job.pairs(), std::max<int64_t>(resident / parts, 1));
  chaski::launch("expert_matmul",
                 {dim3(unsigned(parts), unsigned(blocks)), 32 * segments, c.stream,
                  RowSums<kTokens>::bytes(job.matrices(), segments)},
                 expert_tiles<F, kTokens>, rows, args);
}

template <class F>
void launch_sorted(const ExpertMatMul& op, ExpertArgs args, int64_t n, const LaunchContext& c) {
  const SortedRows rows(c.scratch, n, op.experts, F::kFloat);
  const int64_t most = SortedRows::most_tiles(n, op.experts);
  chaski::launch("sort_rows",
                 {dim3(1), kSortThreads, c.stream, 2 * sizeof(int32_t) * size_t(op.experts)},
                 sort_rows, rows, args.experts, int(n), op.experts);
  chaski::launch("copy_rows", {dim3(unsigned(most), kGroup), 128, c.stream}, copy_rows, rows, args);
  args.job.x = rows.x, args.job.acts = {rows.acts, most * kGroup, args.job.blocks};
  args.job.tokens = most * kGroup;
  if constexpr (kByFma<F>)
    launch_tiles<F, 8>(rows, most, args, c);
  else
    launch_tiles<F, 16>(rows, most, args, c);
}

// up: the arguments with the second weight, or null.
void launch_experts(const ExpertMatMul& op, const OpArgs& a, const OpArgs* up, MatMulJob job,
                    const LaunchContext& c) {
  const Operand& w = a.in[1];
  const int64_t rows = rows_of(a), outputs = op.outputs(a);
  job.x = a.in[0].floats(), job.acts = a.in_acts, job.tokens = 1;
  job.cols = int(a.in[0].shape.cols), job.blocks = (job.cols + 31) / 32;
  const auto strip = int64_t(strip_bytes(w.format, w.shape.cols));
  job.part[0] = {w.bytes(), strip, outputs, a.out[0].out_row(0), op.biases(a, 0)};
  if (up) job.part[1] = {up->in[1].bytes(), strip, outputs, a.out[0].out_row(0), op.biases(*up, 0)};
  const ExpertArgs args{job, a.in[2].ints(0), job.part[0].strips() * strip,
                        int(rows / a.in[0].shape.rows)};
  if (sorts(op, a))
    return with_device_format(w.format, [&]<class F>(F) { launch_sorted<F>(op, args, rows, c); });
  const int segments = segments_of(groups_of(job.blocks));
  const int64_t resident = int64_t(c.multiprocessors) * (kMostSegments / segments),
                blocks = std::min(job.pairs(), std::max<int64_t>(resident / rows, 1));
  with_device_format(w.format, [&]<class F>(F) {
    chaski::launch("expert_matmul",
                   {dim3(1, unsigned(blocks), unsigned(rows)), 32 * segments, c.stream,
                    shared_bytes(a, job.matrices())},
                   expert_rows<F>, args);
  });
}

struct ExpertMatMulKernel {
  static bool supports(const ExpertMatMul&, const OpArgs& a) { return supports_shape(a, 1); }
  static size_t scratch(const ExpertMatMul& op, const OpArgs& a, int) {
    return scratch_bytes(op, a);
  }
  static void launch(const ExpertMatMul& op, const OpArgs& a, const LaunchContext& c) {
    launch_experts(op, a, nullptr, {}, c);
  }
};

struct GatedExpertMatMulKernel {
  static bool supports(const GatedExpertMatMul& op, const OpArgs& a) {
    return a.in[1].format == a.in[2].format && supports_shape(op.plain_args(a, 0), 2);
  }
  static size_t scratch(const GatedExpertMatMul& op, const OpArgs& a, int) {
    return scratch_bytes(op.plain(), op.plain_args(a, 0));
  }
  static void launch(const GatedExpertMatMul& op, const OpArgs& a, const LaunchContext& c) {
    MatMulJob job;
    job.gated = true, job.kind = op.kind, job.clamped = op.clamped, job.out_acts = a.acts;
    const OpArgs up = op.plain_args(a, 1);
    launch_experts(op.plain(), op.plain_args(a, 0), &up, job, c);
  }
};

}  // namespace

template <>
struct CudaKernel<ExpertMatMul> : ExpertMatMulKernel {};
template CudaEntry cuda_entry<ExpertMatMul>();
template <>
struct CudaKernel<GatedExpertMatMul> : GatedExpertMatMulKernel {};
template CudaEntry cuda_entry<GatedExpertMatMul>();

}  // namespace chaski
