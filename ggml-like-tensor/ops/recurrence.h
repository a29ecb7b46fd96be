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

// The matrix that a head keeps. Blocks of kWide columns follow each other, each with all its rows;
// the last one may have fewer vectors. So a unit of work reads and writes consecutive memory: as
// parts of rows of 512 bytes, its 16 KB would compete for a quarter of the nearest cache's sets.
struct HeadState {
  static constexpr int64_t kWide = 2 * kStateLanes;
  int64_t rows, cols;

  constexpr int64_t size() const { return state_row(cols) * rows; }  // in floats
  // The first number of a column, and the distance to the same column of the next row.
  constexpr int64_t at(int64_t col) const { return col / kWide * kWide * rows + col % kWide; }
  constexpr int64_t stride(int64_t col) const {
    const int64_t left = state_row(cols) - col / kWide * kWide;
    return left < kWide ? left : kWide;
  }
};

}  // namespace chaski
