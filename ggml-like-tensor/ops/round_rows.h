// Rounds rows to integers of 8 bits and a unit: q = x * (127 / max |x|), rounded to nearest even.
// Sums of q times -1, 0 and 1 are exact as floats in any order, up to 2^24 / 127 terms. A max below
// 1e-5 counts as 1e-5. A row with a value that is not finite becomes NaN as a whole.
//   in 0 x (rows, cols) -> out 0 q (rows, cols), out 1 max |x| / 127 (rows, 1)
// Ma et al. 2024, "The Era of 1-bit LLMs".
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct RoundRows {
  static constexpr const char* kName = "round_rows";
  static constexpr float kSmallest = 1e-5f;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    return {in[0], {in[0].rows, 1}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      const std::span<const float> x(a.in[0].row(t), size_t(a.in[0].shape.cols));
      float most = kSmallest, zero = 0;
      for (float v : x) most = std::max(most, std::fabs(v)), zero += v * 0;
      for (size_t i = 0; i < x.size(); ++i)
        a.out[0].out_row(t)[i] = zero == 0 ? std::nearbyint(x[i] * (127 / most)) : NAN;
      a.out[1].out_row(t)[0] = zero == 0 ? most / 127 : NAN;
    }
  }
  static std::vector<Example<RoundRows>> examples() {
    return {{{}, {{{3, 45}}}}, {{}, {{{2, 64}}}}, {{}, {{{1, 1}}}}};
  }
};

}  // namespace chaski
