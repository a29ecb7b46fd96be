// Elementwise a + b, a * b, or gpt-oss's gate: with a' = min(a, 7) and b' = b limited to -7 .. 7,
// a' * sigmoid(1.702 a') * (b' + 1). Source: transformers, gpt_oss.
//   in 0 a, in 1 b: of the same shape, or one row that is combined with every row of a -> out 0
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Binary {
  static constexpr const char* kName = "binary";
  enum class Kind { add, mul, clamped_swiglu } kind = Kind::add;
  static constexpr float kLimit = 7, kSlope = 1.702f;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0] == in[1] || in[1] == (Shape{1, in[0].cols}),
           "b must have the shape of a, or be one row as long as the rows of a");
    return {in[0]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    const int64_t of_b = a.in[1].shape.rows * a.in[1].shape.cols;
    for (int64_t i = 0; i < a.in[0].shape.rows * a.in[0].shape.cols; ++i) {
      const float x = a.in[0].floats()[i], y = a.in[1].floats()[i % of_b];
      a.out[0].out_row(0)[i] = kind == Kind::add   ? x + y
                               : kind == Kind::mul ? x * y
                                                   : clamped_swiglu(x, y);
    }
  }
  // A comparison with a NaN is false, so it passes the limits.
  static float clamped_swiglu(double gate, double up) {
    if (gate > kLimit) gate = kLimit;
    up = up < -kLimit ? -kLimit : up > kLimit ? kLimit : up;
    return float(gate / (1 + std::exp(-double(kSlope) * gate)) * (up + 1));
  }
  static std::vector<Example<Binary>> examples() {
    const Input wide{.shape = {3, 45}, .spread = 20};
    return {{{Kind::add}, {{{3, 45}}, {{3, 45}}}},
            {{Kind::mul}, {{{2, 64}}, {{2, 64}}}},
            {{Kind::mul}, {{{3, 45}}, {{1, 45}, Format::f32, true}}},
            {{Kind::clamped_swiglu}, {wide, wide}},
            {{Kind::clamped_swiglu}, {{{2, 64}}, {{2, 64}}}}};
  }
};

}  // namespace chaski
