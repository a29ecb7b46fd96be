// The matmul kernel for few tokens, for every format.
#include <algorithm>

#include "cuda/matmul/matmul_rows.cuh"
#include "quant/formats.h"

namespace chaski {
namespace {

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

}  // namespace

void launch_matmul_rows(Format format, int tokens, const MatMulJob& job, const LaunchContext& c) {
  with_device_format(format, [&]<class F>(F) {
    if (tokens == 1) return launch_rows<F, 1>(job, c);
    if constexpr (!kByFma<F>)
      if (tokens == 16) return launch_rows<F, 16>(job, c);
    launch_rows<F, 8>(job, c);
  });
}

}  // namespace chaski
