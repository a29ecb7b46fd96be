// What ops with a recurrent state share. Such an op walks the tokens of a sequence one after
// another. So the state after a token does not depend on how the tokens were divided into passes.
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

// Calls run(first, end) for the tokens of each sequence of the batch.
template <class Run>
[[gnu::always_inline]] inline void each_sequence(const Batch& batch, int64_t tokens, Run run) {
  for (int64_t first = 0, end; first < tokens; first = end) {
    for (end = first + 1;
         end < tokens && batch.sequences[size_t(end)] == batch.sequences[size_t(first)];)
      ++end;
    run(first, end);
  }
}

// The state of token t's sequence.
[[gnu::always_inline]] inline float* state_at(const OpArgs& a, StateId state, int64_t t) {
  const RecurrentView& view = a.where->states.recurrent[size_t(state)];
  return reinterpret_cast<float*>(view.block(a.batch->table(view, t)[0]));
}

// Rows of a state are whole vectors: a row of `cols` numbers takes this many.
constexpr int kStateLanes = 16;
constexpr int64_t state_row(int64_t cols) {
  return (cols + kStateLanes - 1) / kStateLanes * kStateLanes;
}

}  // namespace chaski
