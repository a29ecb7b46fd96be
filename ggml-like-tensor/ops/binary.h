// Elementwise a + b, a * b.
//   in 0 a, in 1 b, same shape -> out 0
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Binary {
  static constexpr const char* kName = "binary";
  enum class Kind { add, mul } kind = Kind::add;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0] == in[1], "elementwise ops need equal shapes");
    return {in[0]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t i = 0; i < a.in[0].shape.rows * a.in[0].shape.cols; ++i) {
      const float x = a.in[0].floats()[i], y = a.in[1].floats()[i];
      a.out[0].out_row(0)[i] = kind == Kind::add ? x + y : x * y;
    }
  }
  static std::vector<Example<Binary>> examples() {
    return {{{Kind::add}, {{{3, 45}}, {{3, 45}}}}, {{Kind::mul}, {{{2, 64}}, {{2, 64}}}}};
  }
};

}  // namespace chaski
