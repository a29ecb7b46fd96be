// Neighbouring steps that one kernel does when a pass has one token, so that a layer of a decode
// step is five kernels:
//
//   norm, matmul of q, k and v, kv_write | attention | matmul | norm, gated_matmul | matmul
//
// Every kernel less saves its start and the time in which the memory waits. With more tokens the
// steps stay apart: a norm in every block would be made as often as there are blocks, for every
// token.
#pragma once
#include "cuda/table.h"
#include "ggml-like-tensor/plan.h"

namespace chaski {

constexpr int kMostFused = 3;

// Steps [first, first + count) of a plan, the matmul of them at `matmul`.
struct FusedSteps {
  size_t first = 0, count = 1, matmul = 0;
  bool norm() const { return matmul > first; }
  bool kv_write() const { return first + count > matmul + 1; }
};

// What starts at step `first` of a plan that is bound. Bits are those of the steps one by one.
FusedSteps fused_steps(const Plan& plan, size_t first, size_t shared_limit);
void launch_fused(const Plan& plan, const FusedSteps& f, const LaunchContext& c);

}  // namespace chaski
