// xIELU (Huang and Schlag 2024, "Deriving Activation Functions Using Integration"): above 0, y =
// positive * x^2 + beta * x; else y = negative * (e^min(x, eps) - 1 - x) + beta * x.
//   in 0 x -> out 0, same shape
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Xielu {
  static constexpr const char* kName = "xielu";
  float positive = 1, negative = 1, beta = 0.5f, eps = -1e-6f;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const { return {in[0]}; }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t i = 0; i < a.in[0].shape.rows * a.in[0].shape.cols; ++i) {
      const double x = a.in[0].floats()[i];
      const double curve =
          x > 0 ? positive * x * x : negative * (std::expm1(x < eps ? x : double{eps}) - x);
      a.out[0].out_row(0)[i] = float(std::fma(double{beta}, x, curve));
    }
  }
  static std::vector<Example<Xielu>> examples() {
    return {{{1.2f, 0.7f, 0.5f, -1e-6f}, {{{3, 45}}}}, {{0.5f, 2, -0.25f, -0.5f}, {{{2, 64}}}}};
  }
};

}  // namespace chaski
