// silu(x) = x / (1 + e^-x); gelu_erf(x) = x / 2 (1 + erf(x / sqrt(2))), Hendrycks and Gimpel 2016;
// gelu, their tanh form: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); relu(x) = max(x, 0);
// relu2, its square (So et al. 2021, Primer); sigmoid(x) = 1 / (1 + e^-x); softplus(x) =
// ln(1 + e^x); tanh(x).
//   in 0 x -> out 0, same shape
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

enum class Activation { silu, gelu, gelu_erf, relu, relu2, sigmoid, softplus, tanh };

inline double activate(Activation kind, double x) {
  if (kind == Activation::silu) return x / (1 + std::exp(-x));
  if (kind == Activation::gelu_erf) return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
  if (kind == Activation::relu) return x < 0 ? 0 : x;
  if (kind == Activation::relu2) return x < 0 ? 0 : x * x;
  if (kind == Activation::sigmoid) return 1 / (1 + std::exp(-x));
  if (kind == Activation::softplus) return x > 30 ? x : std::log1p(std::exp(x));
  if (kind == Activation::tanh) return std::tanh(x);
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
            {{Activation::gelu}, {{{2, 64}}}},
            {{Activation::gelu_erf}, {{{3, 45}}}},
            {{Activation::relu}, {{{3, 45}}}},
            {{Activation::relu2}, {{{3, 45}}}},
            {{Activation::sigmoid}, {{{3, 45}}}},
            {{Activation::softplus}, {{{3, 45}}}},
            {{Activation::softplus}, {Input{.shape = {3, 45}, .spread = 100}}},
            {{Activation::tanh}, {{{3, 45}}}},
            {{Activation::tanh}, {Input{.shape = {3, 45}, .spread = 100}}}};
  }
};

}  // namespace chaski
