// Activations to 8 bits where no other kernel could do it in passing: a warp to a block of 32.
#include "cuda/math.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

constexpr int kWarps = 4;

__global__ void quantize_acts(const float* x, ActsView acts) {
  wait_for_previous();
  start_next();
  const int64_t row = blockIdx.x, block = int64_t(blockIdx.y) * kWarps + threadIdx.x / 32;
  if (block < acts.blocks)
    quantize_block(x[(row * acts.blocks + block) * 32 + threadIdx.x % 32], &acts.at(row, block));
}

struct QuantizeActsKernel {
  static void launch(const QuantizeActs&, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("quantize_acts",
                   {dim3(unsigned(a.acts.rows), unsigned((a.acts.blocks + kWarps - 1) / kWarps)),
                    kWarps * 32, c.stream},
                   quantize_acts, a.in[0].floats(), a.acts);
  }
};

}  // namespace

CudaEntry quantize_acts_entry() { return cuda_entry<QuantizeActs, QuantizeActsKernel>(); }

}  // namespace chaski
