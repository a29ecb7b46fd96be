// A causal convolution over the tokens of a sequence, for every channel separately: the channel's
// last `taps` inputs, including the token's own, times `taps` weights. Inputs before the sequence's
// first token are not added.
//   in 0 x (tokens, cols), in 1 w (1, taps * cols): the oldest input's weights first
//   -> out 0 (tokens, cols)
// The state holds the last taps - 1 inputs, (taps - 1, cols); the input of cell c is in row c %
// (taps - 1). Every token of a sequence replaces one row, so the op must process each token once,
// in order.
#pragma once
#include <cstring>

#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct ShortConv {
  static constexpr const char* kName = "short_conv";
  StateId state = 0;
  int taps = 2, cols = 0;

  Recurrent kept() const { return {int64_t(taps - 1) * cols * int64_t(sizeof(float))}; }
  // The state of token t's sequence.
  float* rows(const OpArgs& a, int64_t t) const {
    const RecurrentView& view = a.where->states.recurrent[size_t(state)];
    return reinterpret_cast<float*>(view.block(a.batch->table(view, t)[0]));
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == cols && taps >= 2 && in[1] == (Shape{1, int64_t(taps) * cols}),
           "every channel must have `taps` weights");
    return {in[0]};
  }
  Cost cost(const OpArgs& a) const {
    return {double(kept().bytes), 2.0 * double(a.in[0].shape.rows) * taps * cols};
  }

  void reference(const OpArgs& a) const {
    const Batch& b = *a.batch;
    const float* w = a.in[1].floats();
    for (int64_t first = 0, end; first < a.in[0].shape.rows; first = end) {
      for (end = first + 1;
           end < a.in[0].shape.rows && b.sequences[size_t(end)] == b.sequences[size_t(first)];)
        ++end;
      float* const kept = rows(a, first);
      for (int64_t t = first; t < end; ++t)
        for (int c = 0; c < cols; ++c) {
          float sum = 0;
          for (int tap = 0; tap < taps; ++tap) {
            const int ago = taps - 1 - tap, cell = b.cells[size_t(t)] - ago;
            if (cell < 0) continue;
            const float x =
                ago <= t - first ? a.in[0].row(t - ago)[c] : kept[cell % (taps - 1) * cols + c];
            sum = std::fma(w[tap * cols + c], x, sum);
          }
          a.out[0].out_row(t)[c] = sum;
        }
      for (int64_t t = std::max(first, end - (taps - 1)); t < end; ++t)
        std::memcpy(kept + b.cells[size_t(t)] % (taps - 1) * cols, a.in[0].row(t),
                    size_t(cols) * sizeof(float));
    }
  }
  static std::vector<Example<ShortConv>> examples() {
    return {{{0, 3, 45}, {{{5, 45}}, {{1, 3 * 45}, Format::f32, true}}, 5},
            {{1, 4, 160}, {{{21, 160}}, {{1, 4 * 160}, Format::f32, true}}, 21},
            {{0, 2, 64}, {{{1, 64}}, {{1, 2 * 64}, Format::f32, true}}, 1},
            // more taps than the second sequence has inputs
            {{0, 10, 16}, {{{5, 16}}, {{1, 10 * 16}, Format::f32, true}}, 5}};
  }
};

}  // namespace chaski
