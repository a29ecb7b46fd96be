// Matmul on the device: which kernel multiplies how many tokens. The choice moves time, never a bit
// (order.h).
#include <algorithm>

#include "cuda/matmul_rows.cuh"
#include "cuda/matmul_tiles.cuh"

namespace chaski {
namespace {

// From here on the tile kernel: below, its 128 tokens a block would be mostly empty.
constexpr int64_t kTileTokens = 65;

template <class F, int kTokens>
void launch_rows(const MatMulJob& job, const LaunchContext& c) {
  const int segments = segments_of(groups_of(job.blocks));
  const int64_t tiles = (job.tokens + kTokens - 1) / kTokens,
                resident = int64_t(c.multiprocessors) * (kMostSegments / segments);
  const dim3 grid{unsigned(tiles),
                  unsigned(std::min(job.pairs(), std::max<int64_t>(resident / tiles, 1)))};
  const size_t shared =
      RowSums<kTokens>::bytes(job.matrices(), segments) + (job.norm.x ? normed_bytes(job.cols) : 0);
  chaski::launch("matmul", {grid, 32 * segments, c.stream, shared}, matmul_rows<F, kTokens>, job);
}

template <class F>
void launch_tiles(const MatMulJob& job, const LaunchContext& c) {
  const int64_t per_block = TileShape::kSlots / job.matrices();
  const dim3 grid(unsigned((job.tokens + TileShape::kTokens - 1) / TileShape::kTokens),
                  unsigned((job.pairs() + per_block - 1) / per_block));
  chaski::launch("matmul", {grid, TileShape::kThreads, c.stream, sizeof(TileShared<F>)},
                 matmul_tiles<F>, job);
}

// Float activations are copied 16 bytes at a time.
template <class F>
bool tiles_take(const MatMulJob& job, const LaunchContext& c) {
  return job.tokens >= kTileTokens && sizeof(TileShared<F>) <= c.shared_limit &&
         (!F::kFloat || job.cols % 4 == 0);
}

}  // namespace

void launch_matmul(Format format, const MatMulJob& job, const LaunchContext& c) {
  Formats::with(format, [&]<class F>(F) {
    if (job.tokens == 1) {
      launch_rows<F, 1>(job, c);
    } else if constexpr (std::is_same_v<F, F32>) {
      launch_rows<F, 8>(job, c);
    } else {
      if (job.tokens <= 8)
        launch_rows<F, 8>(job, c);
      else if (tiles_take<F>(job, c))
        launch_tiles<F>(job, c);
      else
        launch_rows<F, 16>(job, c);
    }
  });
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
  // neighbours of one format go together
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
    job.norm.sum = nullptr;  // once is enough
  }
}

namespace {

struct MatMulKernel {
  static void launch(const MatMul& op, const OpArgs& a, const LaunchContext& c) {
    launch_op(op, a, {}, {}, c);
  }
};

}  // namespace

CudaEntry matmul_entry() { return cuda_entry<MatMul, MatMulKernel>(); }

}  // namespace chaski
