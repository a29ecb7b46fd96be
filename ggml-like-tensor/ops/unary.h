// silu(x) = x / (1 + e^-x); gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), the tanh
// form of Hendrycks and Gimpel 2016.
//   in 0 x -> out 0, same shape
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

enum class Activation { silu, gelu };

inline double activate(Activation kind, double x) {
  if (kind == Activation::silu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

struct Unary {
  static constexpr const char* kName = "unary";
  Activation kind = Activation::silu;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const { return {in[0]}; }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t i = 0; i < a.in[0].shape.rows * a.in[0].shape.cols; ++i)
      a.out[0].out_row(0)[i] = float(activate(kind, a.in[0].floats()[i]));
  }
  static std::vector<Example<Unary>> examples() {
    return {{{Activation::silu}, {{{3, 45}}}},
            {{Activation::gelu}, {{{3, 45}}}},
            {{Activation::gelu}, {{{2, 64}}}}};
  }
};

}  // namespace chaski
