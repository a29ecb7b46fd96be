// The mean of the products of two rows. With the same row twice it is the mean square.
//   in 0 a (rows, cols), in 1 b (rows, cols) or (1, cols) for all rows -> out 0 (rows, 1)
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct MeanProduct {
  static constexpr const char* kName = "mean_product";

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == in[1].cols && (in[1].rows == in[0].rows || in[1].rows == 1),
           "both inputs must have the same shape, or the second one row");
    return {{in[0].rows, 1}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  // The row of b for row t of a.
  static const float* row_of_b(const OpArgs& a, int64_t t) {
    return a.in[1].row(a.in[1].shape.rows == 1 ? 0 : t);
  }
  void reference(const OpArgs& a) const {
    const int64_t n = a.in[0].shape.cols;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double(a.in[0].row(t)[i]) * row_of_b(a, t)[i];
      a.out[0].out_row(t)[0] = float(sum / double(n));
    }
  }
  static std::vector<Example<MeanProduct>> examples() {
    return {{{}, {{{3, 45}}, {{3, 45}}}},
            {{}, {{{2, 64}}, {{2, 64}}}},
            {{}, {{{1, 1}}, {{1, 1}}}},
            {{}, {{{5, 45}}, {{1, 45}, Format::f32, true}}}};
  }
};

}  // namespace chaski
