// The k largest values of each row, largest first; of equal values the lower column first. It
// chooses the experts of a token. A NaN counts as larger than any number, so that it is noticed.
//   in 0 x (rows, cols) -> out 0 their columns (rows, k) i32, out 1 their values (rows, k)
#pragma once
#include <algorithm>
#include <bit>
#include <numeric>

#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct TopK {
  static constexpr const char* kName = "top_k";
  int k = 1;

  static ValueKind kind_out(size_t i) { return i == 0 ? ValueKind::i32 : ValueKind::f32; }

  // Larger for values that come earlier; the same for equal values. -0 counts as 0.
  [[gnu::always_inline]] static constexpr uint32_t rank(float x) {
    const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0xffffffff;
    return bits >> 31 ? ~bits : bits | 0x80000000;
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(k > 0 && k <= in[0].cols, "k must be between 1 and the number of columns");
    return {{in[0].rows, k}, {in[0].rows, k}};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    std::vector<int32_t> order(a.in[0].shape.cols);
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      const float* x = a.in[0].row(t);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t i, int32_t j) { return rank(x[i]) > rank(x[j]); });
      for (int i = 0; i < k; ++i)
        a.out[0].out_ints(t)[i] = order[i], a.out[1].out_row(t)[i] = x[order[i]];
    }
  }
  static std::vector<Example<TopK>> examples() {
    return {{{4}, {{{5, 37}}}}, {{8}, {{{3, 128}}}}, {{1}, {{{2, 5}}}}, {{3}, {{{1, 3}}}}};
  }
};

}  // namespace chaski
