// Adds the results of a token's experts: sums of neighbouring rows, each times a weight.
//   in 0 x (tokens * chosen, cols), in 1 weights (tokens, chosen) -> out 0 (tokens, cols)
// Computed by one fma after another from zero, first to last.
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Mix {
  static constexpr const char* kName = "mix";

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].rows == in[1].rows * in[1].cols, "every row must have a weight");
    return {{in[1].rows, in[0].cols}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    const int64_t chosen = a.in[1].shape.cols;
    for (int64_t t = 0; t < a.in[1].shape.rows; ++t)
      for (int64_t i = 0; i < a.in[0].shape.cols; ++i) {
        float sum = 0;
        for (int64_t j = 0; j < chosen; ++j)
          sum = std::fma(a.in[1].row(t)[j], a.in[0].row(t * chosen + j)[i], sum);
        a.out[0].out_row(t)[i] = sum;
      }
  }
  static std::vector<Example<Mix>> examples() {
    return {{{}, {{{6, 45}}, {{3, 2}}}}, {{}, {{{8, 64}}, {{1, 8}}}}, {{}, {{{2, 16}}, {{2, 1}}}}};
  }
};

}  // namespace chaski
