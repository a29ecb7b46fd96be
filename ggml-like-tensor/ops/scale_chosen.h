// y = x times the scale of the expert that belongs to each value.
//   in 0 x (rows, k), in 1 experts (rows, k) i32, in 2 scales (1, experts) -> out 0, shape of x
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct ScaleChosen {
  static constexpr const char* kName = "scale_chosen";

  static ValueKind kind_in(size_t i) { return i == 1 ? ValueKind::i32 : ValueKind::f32; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0] == in[1] && in[2].rows == 1, "every value must belong to an expert");
    return {in[0]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t i = 0; i < a.in[0].shape.rows * a.in[0].shape.cols; ++i)
      a.out[0].out_row(0)[i] = a.in[0].floats()[i] * a.in[2].floats()[a.in[1].ints(0)[i]];
  }
  static std::vector<Example<ScaleChosen>> examples() {
    return {{{}, {{{5, 3}}, {.shape = {5, 3}, .below = 7}, {{1, 7}, Format::f32, true}}},
            {{}, {{{1, 8}}, {.shape = {1, 8}, .below = 128}, {{1, 128}, Format::f32, true}}}};
  }
};

}  // namespace chaski
