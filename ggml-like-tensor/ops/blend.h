// A sum of values of the same shape, each times a weight of its row.
//   in 0 to n - 1 x (rows, cols), in n weights (rows, at least first + n) -> out 0 (rows, cols)
// Computed by one fma after another from zero, first to last. The weights are columns first to
// first + n - 1.
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Blend {
  static constexpr const char* kName = "blend";
  int64_t first = 0;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    const Shape& weights = in.back();
    ENSURE(weights.cols >= first + int64_t(in.size()) - 1 && weights.rows == in[0].rows,
           "every row must have a weight for each value");
    for (size_t i = 1; i + 1 < in.size(); ++i) ENSURE(in[i] == in[0], "values must have one shape");
    return {in[0]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    const int n = a.n_in - 1;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      for (int64_t i = 0; i < a.in[0].shape.cols; ++i) {
        float sum = 0;
        for (int j = 0; j < n; ++j)
          sum = std::fma(a.in[n].row(t)[first + j], a.in[j].row(t)[i], sum);
        a.out[0].out_row(t)[i] = sum;
      }
  }
  static std::vector<Example<Blend>> examples() {
    const Input x{{3, 45}};
    return {{{4}, {x, x, x, x, {{3, 16}}}}, {{0}, {{{2, 64}}, {{2, 1}}}}, {{1}, {x, x, {{3, 3}}}}};
  }
};

}  // namespace chaski
