// A causal convolution over the tokens of a sequence, for every channel separately: the channel's
// last `taps` inputs, including the token's own, times `taps` weights. Inputs before the sequence's
// first token are not added. Then the bias is added, and silu applied, if the op has them.
//   in 0 x (tokens, cols), in 1 w (1, taps * cols): the oldest input's weights first; in 2 bias (1,
//   cols), if `bias`
//   -> out 0 (tokens, cols)
// The state holds the last taps - 1 inputs, (taps - 1, cols); the input of cell c is in row c %
// (taps - 1). Every token of a sequence replaces one row, so the op must process each token once,
// in order.
#pragma once
#include <cstring>

#include "ggml-like-tensor/ops/recurrence.h"
#include "ggml-like-tensor/ops/unary.h"

namespace chaski {

struct ShortConv {
  static constexpr const char* kName = "short_conv";
  StateId state = 0;
  int taps = 2, cols = 0;
  bool bias = false, silu = false;

  Recurrent kept() const { return {int64_t(taps - 1) * cols * int64_t(sizeof(float))}; }
  // The bias, or null.
  const float* biases(const OpArgs& a) const { return bias ? a.in[2].floats() : nullptr; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == cols && taps >= 2 && in[1] == (Shape{1, int64_t(taps) * cols}),
           "every channel must have `taps` weights");
    ENSURE(!bias || in[2] == (Shape{1, cols}), "every channel must have a bias");
    return {in[0]};
  }
  Cost cost(const OpArgs& a) const {
    return {double(kept().bytes), 2.0 * double(a.in[0].shape.rows) * taps * cols};
  }

  void reference(const OpArgs& a) const {
    const Batch& b = *a.batch;
    const float* w = a.in[1].floats();
    each_sequence(b, a.in[0].shape.rows, [&](int64_t first, int64_t end) {
      float* const kept = state_at(a, state, first);
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
          if (bias) sum += biases(a)[c];
          a.out[0].out_row(t)[c] = silu ? float(activate(Activation::silu, sum)) : sum;
        }
      for (int64_t t = std::max(first, end - (taps - 1)); t < end; ++t)
        std::memcpy(kept + b.cells[size_t(t)] % (taps - 1) * cols, a.in[0].row(t),
                    size_t(cols) * sizeof(float));
    });
  }
  static std::vector<Example<ShortConv>> examples() {
    const auto vector = [](int64_t cols) { return Input{{1, cols}, Format::f32, true}; };
    return {{{0, 3, 45}, {{{5, 45}}, vector(3 * 45)}, 5},
            {{1, 4, 160}, {{{21, 160}}, vector(4 * 160)}, 21},
            {{0, 2, 64}, {{{1, 64}}, vector(2 * 64)}, 1},
            {{0, 4, 45, true, true}, {{{21, 45}}, vector(4 * 45), vector(45)}, 21},
            {{0, 4, 160, false, true}, {{{5, 160}}, vector(4 * 160)}, 5},
            {{0, 3, 45, true}, {{{5, 45}}, vector(3 * 45), vector(45)}, 5},
            // more taps than the second sequence has inputs
            {{0, 10, 16}, {{{5, 16}}, vector(10 * 16)}, 5}};
  }
};

}  // namespace chaski
