// Row-wise soft-max of scale * x.
//   in 0 x -> out 0, same shape
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct SoftMax {
  static constexpr const char* kName = "soft_max";
  float scale = 1;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const { return {in[0]}; }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      const std::span<const float> x(a.in[0].row(t), a.in[0].shape.cols);
      double most = -INFINITY, sum = 0;
      for (float v : x) most = std::max(most, double(scale) * v);
      for (float v : x) sum += std::exp(double(scale) * v - most);
      for (size_t i = 0; i < x.size(); ++i)
        a.out[0].out_row(t)[i] = float(std::exp(double(scale) * x[i] - most) / sum);
    }
  }
  static std::vector<Example<SoftMax>> examples() {
    return {{{1}, {{{3, 45}}}}, {{0.5f}, {{{2, 64}}}}, {{1}, {{{1, 1}}}}};
  }
};

}  // namespace chaski
