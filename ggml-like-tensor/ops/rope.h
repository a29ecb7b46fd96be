// Rotates the pairs (2i, 2i + 1) of the first spec.dim channels of every head by the angles of its
// position (rope_spec.h).
//   in 0 x (tokens, heads * head_dim) -> out 0
#pragma once
#include "ggml-like-tensor/ops/operand.h"
#include "ggml-like-tensor/rope_spec.h"

namespace chaski {

struct Rope {
  static constexpr const char* kName = "rope";
  int heads = 1, head_dim = 0;
  int dim = 0;   // rotated channels of a head
  int spec = 0;  // index into PassContext::ropes

  // One fma and one rounded product: this order is part of the definition.
  static void pair(float x0, float x1, float cos, float sin, float* y) {
    y[0] = std::fma(x0, cos, -(x1 * sin));
    y[1] = std::fma(x0, sin, x1 * cos);
  }
  static void head(const float* x, float* y, const float* angles, int head_dim, int dim) {
    for (int i = 0; i < dim; i += 2) pair(x[i], x[i + 1], angles[i], angles[i + 1], y + i);
    if (y != x) std::copy(x + dim, x + head_dim, y + dim);
  }
  const float* angles(const OpArgs& a, int64_t t) const {
    return a.where->ropes[spec] + int64_t(a.batch->positions[t]) * dim;
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == int64_t(heads) * head_dim && dim <= head_dim && dim % 2 == 0,
           "heads must divide the row evenly");
    return {in[0]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      for (int h = 0; h < heads; ++h)
        head(a.in[0].row(t) + h * head_dim, a.out[0].out_row(t) + h * head_dim, angles(a, t),
             head_dim, dim);
  }
  static std::vector<Example<Rope>> examples() {
    return {{{3, 16, 16, 0}, {{{5, 48}}}, 5}, {{2, 24, 10, 0}, {{{2, 48}}}, 2}};
  }
};

}  // namespace chaski
