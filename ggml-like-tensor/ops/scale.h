// y = factor * x. Then, if `cap` > 0, cap * tanh(y / cap), which bounds logits. Then, if `clip` >
// 0, y limited to [-clip, clip].
//   in 0 x -> out 0, same shape
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Scale {
  static constexpr const char* kName = "scale";
  float factor = 1, cap = 0, clip = 0;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const { return {in[0]}; }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t i = 0; i < a.in[0].shape.rows * a.in[0].shape.cols; ++i) {
      double y = factor * a.in[0].floats()[i];
      if (cap > 0) y = cap * std::tanh(y / cap);
      if (clip > 0) y = y < -clip ? -clip : y > clip ? clip : y;
      a.out[0].out_row(0)[i] = float(y);
    }
  }
  static std::vector<Example<Scale>> examples() {
    return {{{12.5f, 0}, {{{3, 45}}}},
            {{1, 2}, {{{2, 64}}}},
            {{0.25f, 30}, {{{2, 33}}}},
            {{1, 0, 0.5f}, {{{3, 45}}}}};
  }
};

}  // namespace chaski
