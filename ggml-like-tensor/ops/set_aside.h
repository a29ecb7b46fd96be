// Separates some columns of every row from the others, for matrices that keep a few columns in 16
// bits (LLM.int8, Dettmers et al. 2022). The remaining row has zeros there, so that it can be
// quantized to 8 bits as if these columns did not exist.
//   in 0 x (rows, cols), in 1 numbers (1, count): column indices, as floats
//   -> out 0 (rows, cols): x, 0 in these columns; out 1 (rows, count): these columns
// An index out of range counts as the nearest column, NaN as 0.
#pragma once
#include "ggml-like-tensor/ops/reorder.h"

namespace chaski {

struct SetAside {
  static constexpr const char* kName = "set_aside";

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[1].rows == 1 && in[1].cols <= in[0].cols, "more numbers than columns");
    return {in[0], {in[0].rows, in[1].cols}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    const int64_t cols = a.in[0].shape.cols;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      const float* x = a.in[0].row(t);
      std::copy(x, x + cols, a.out[0].out_row(t));
      for (int64_t i = 0; i < a.in[1].shape.cols; ++i) {
        const int64_t column = Reorder::column(a.in[1].floats()[i], cols);
        a.out[1].out_row(t)[i] = x[column], a.out[0].out_row(t)[column] = 0;
      }
    }
  }
  static std::vector<Example<SetAside>> examples() {
    return {{{}, {{{3, 45}}, {{1, 7}, Format::f32, true, 0, 60}}, 3},
            {{}, {{{2, 300}}, {{1, 300}, Format::f32, true, 0, 400}}, 2},
            {{}, {{{1, 1}}, {{1, 1}, Format::f32, true}}}};
  }
};

}  // namespace chaski
