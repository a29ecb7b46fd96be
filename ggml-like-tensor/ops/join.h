// Puts the slices of two rows together, head by head.
//   in 0 a (rows, heads * n), in 1 b (rows, heads * m)
//   -> out 0 (rows, heads * (n + m)): for each head its n columns of a, then its m columns of b
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Join {
  static constexpr const char* kName = "join";
  int heads = 1;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].rows == in[1].rows && in[0].cols % heads == 0 && in[1].cols % heads == 0,
           "both inputs must have the same rows, and a slice for each head");
    return {{in[0].rows, in[0].cols + in[1].cols}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  [[gnu::always_inline]] void row(const OpArgs& a, int64_t t) const {
    const int64_t n = a.in[0].shape.cols / heads, m = a.in[1].shape.cols / heads;
    float* y = a.out[0].out_row(t);
    for (int64_t h = 0; h < heads; ++h, y += n + m) {
      __builtin_memcpy(y, a.in[0].row(t) + h * n, size_t(n) * sizeof(float));
      __builtin_memcpy(y + n, a.in[1].row(t) + h * m, size_t(m) * sizeof(float));
    }
  }
  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) row(a, t);
  }
  static std::vector<Example<Join>> examples() {
    return {
        {{1}, {{{5, 37}}, {{5, 8}}}}, {{3}, {{{2, 48}}, {{2, 24}}}}, {{4}, {{{7, 4}}, {{7, 8}}}}};
  }
};

}  // namespace chaski
