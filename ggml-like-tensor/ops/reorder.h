// Reorders the columns of every row, for matrices whose columns are sorted (GPTQ's act-order).
//   in 0 x (rows, cols), in 1 order (1, cols): column indices, as floats
//   -> out 0 (rows, cols): column i is x's column order[i]
// An index out of range counts as the nearest column, NaN as 0.
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Reorder {
  static constexpr const char* kName = "reorder";

  static constexpr int64_t column(float number, int64_t cols) {
    if (!(number > 0)) return 0;
    return number < float(cols) ? int64_t(number) : cols - 1;
  }
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[1] == (Shape{1, in[0].cols}), "there must be a number for every column");
    return {in[0]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    const int64_t cols = a.in[0].shape.cols;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      for (int64_t i = 0; i < cols; ++i)
        a.out[0].out_row(t)[i] = a.in[0].row(t)[column(a.in[1].floats()[i], cols)];
  }
  static std::vector<Example<Reorder>> examples() {
    return {{{}, {{{3, 45}}, {{1, 45}, Format::f32, true, 0, 60}}},
            {{}, {{{2, 300}}, {{1, 300}, Format::f32, true, 0, 400}}},
            {{}, {{{1, 1}}, {{1, 1}, Format::f32, true}}}};
  }
};

}  // namespace chaski
