// Matmul on the device: chooses the kernel by the number of tokens. The choice changes the time,
// but no bit of the result (order.h).
#include "cuda/matmul/matmul.h"

#include <algorithm>

#include "cuda/entry.h"
#include "cuda/matmul/tile_shape.cuh"

namespace chaski {
namespace {

// The instructions of two units of work, as a ratio: a block of the tile kernel, and a pair of
// strips times 16 tokens in the kernel for few tokens. Both are for 32 columns (nvcc 13.0, sm_90):
// 8 * 478 / 159 for q4, 8 * 380 / 113 for q8, 8 * 372 / 224 for bf16. For floats a smaller number
// is used: the kernel for few tokens reads weights once per 16 tokens, and waits for L2.
constexpr int64_t kTileBlockOfBlocks = 24, kTileBlockOfFloats = 10;

constexpr int64_t rounds(int64_t blocks, int64_t together) {
  return (blocks + together - 1) / together;
}

}  // namespace

// Whether the tile kernel takes fewer rounds of instructions than that for few tokens. Its blocks
// take 128 rows and 128 tokens, so 4096 rows and 128 tokens are 32 blocks, which leave most
// multiprocessors idle. With 64 tokens half of each block would be idle.
bool prefers_tiles(Format format, const MatMulJob& job, const LaunchContext& c) {
  const int64_t pairs = job.pairs() * job.matrices(),
                tiles = rounds(pairs, TileShape::kSlots) * rounds(job.tokens, TileShape::kTokens),
                units = pairs * rounds(job.tokens, kGroup),
                tile = reads_acts(format) ? kTileBlockOfBlocks : kTileBlockOfFloats;
  return job.tokens > TileShape::kWarpTokens &&
         rounds(tiles, c.multiprocessors) * tile <= rounds(units, c.multiprocessors);
}

void launch_matmul(Format format, const MatMulJob& job, const LaunchContext& c) {
  if (job.tokens <= 8)
    launch_matmul_rows(format, job.tokens == 1 ? 1 : 8, job, c);
  else if (!prefers_tiles(format, job, c) || !launch_matmul_tiles(format, job, c))
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
