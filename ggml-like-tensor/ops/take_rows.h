// The rows whose logits are wanted.
//   in 0 x (tokens, cols) -> out 0 (batch.outputs, cols)
#pragma once
#include <cstring>

#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct TakeRows {
  static constexpr const char* kName = "take_rows";

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch& batch) const {
    return {{int64_t(batch.outputs.size()), in[0].cols}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t r = 0; r < a.out[0].shape.rows; ++r)
      std::memcpy(a.out[0].out_row(r), a.in[0].row(a.batch->outputs[r]),
                  a.in[0].shape.cols * sizeof(float));
  }
  static std::vector<Example<TakeRows>> examples() { return {{{}, {{{5, 33}}}, 5}}; }
};

}  // namespace chaski
