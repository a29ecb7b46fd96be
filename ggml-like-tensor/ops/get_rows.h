// Rows of a table by token id or by position: embeddings.
//   in 0 table (vocab, cols) weight -> out 0 (tokens, cols)
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct GetRows {
  static constexpr const char* kName = "get_rows";
  enum class By { token, position } by = By::token;

  int32_t index(const Batch& batch, int64_t t) const {
    return by == By::token ? batch.tokens[t] : batch.positions[t];
  }
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch& batch) const {
    return {{batch.size(), in[0].cols}};
  }
  Cost cost(const OpArgs& a) const {
    return {double(row_bytes(a.in[0].format, a.in[0].shape.cols)) * a.out[0].shape.rows, 0};
  }

  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.out[0].shape.rows; ++t)
      weight_row(a.in[0], index(*a.batch, t), a.out[0].out_row(t));
  }
  static std::vector<Example<GetRows>> examples() {
    std::vector<Example<GetRows>> out;
    for (int f = 0; f < kFormatCount; ++f) {
      const int64_t cols = info(Format(f)).block == 1 ? 45 : 512;
      out.push_back({{By::token}, {{{37, cols}, Format(f), true}}, 5});
    }
    out.push_back({{By::position}, {{{64, 33}, Format::f16, true}}, 3});
    return out;
  }
};

}  // namespace chaski
