// Neighbouring columns of every row.
//   in 0 x (rows, cols) -> out 0 (rows, count): columns first to first + count - 1
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct Columns {
  static constexpr const char* kName = "columns";
  int64_t first = 0, count = 1;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(first >= 0 && count > 0 && first + count <= in[0].cols, "columns must be in range");
    return {{in[0].rows, count}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      std::copy(a.in[0].row(t) + first, a.in[0].row(t) + first + count, a.out[0].out_row(t));
  }
  static std::vector<Example<Columns>> examples() {
    return {{{3, 40}, {{{3, 45}}}}, {{64, 64}, {{{2, 128}}}}, {{0, 1}, {{{5, 1}}}}};
  }
};

}  // namespace chaski
