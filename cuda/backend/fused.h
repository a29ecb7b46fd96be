// Runs neighbouring steps as one kernel if a pass has one token. A layer of a decode step then
// takes five kernels:
//
//   norm, matmul of q, k and v, kv_write | attention | matmul | norm, gated_matmul | matmul
//
// Each kernel saved also saves its start and the time in which the memory is idle. With more tokens
// the steps are separate. A fused norm is computed in every block, which would repeat it for every
// token in every block.
#pragma once
#include "cuda/table.h"
#include "ggml-like-tensor/plan.h"

namespace chaski {

constexpr int kMostFused = 3;

// Steps [first, first + count) of a plan; the matmul is step `matmul`.
struct FusedSteps {
  size_t first = 0, count = 1, matmul = 0;
  bool norm() const { return matmul > first; }
  bool kv_write() const { return first + count > matmul + 1; }
};

// The steps that start at step `first` of a bound plan. The bits are the same as with separate
// steps.
FusedSteps fused_steps(const Plan& plan, size_t first, size_t shared_limit);
void launch_fused(const Plan& plan, const FusedSteps& f, const LaunchContext& c);

}  // namespace chaski
