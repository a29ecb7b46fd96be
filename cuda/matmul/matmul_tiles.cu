// The matmul kernel for many tokens, for every format except those multiplied by fma.
#include "cuda/matmul/matmul_tiles.cuh"
#include "quant/formats.h"

namespace chaski {
namespace {

template <class F>
void launch_tiles(const MatMulJob& job, const LaunchContext& c) {
  const int64_t per_block = TileShape::kSlots / job.matrices();
  const dim3 grid(unsigned((job.tokens + TileShape::kTokens - 1) / TileShape::kTokens),
                  unsigned((job.pairs() + per_block - 1) / per_block));
  chaski::launch("matmul", {grid, TileShape::kThreads, c.stream, sizeof(TileShared<F>)},
                 matmul_tiles<F>, job);
}

// Whether the tile kernel can do the job. Float activations are copied 16 bytes at a time.
template <class F>
bool fits_tiles(const MatMulJob& job, const LaunchContext& c) {
  return sizeof(TileShared<F>) <= c.shared_limit && (!F::kFloat || job.cols % 4 == 0);
}

}  // namespace

bool launch_matmul_tiles(Format format, const MatMulJob& job, const LaunchContext& c) {
  bool launched = false;
  with_device_format(format, [&]<class F>(F) {
    if constexpr (!kByFma<F>)
      if (launched = fits_tiles<F>(job, c); launched) launch_tiles<F>(job, c);
  });
  return launched;
}

}  // namespace chaski
