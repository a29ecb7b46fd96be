// The weights of a token's experts as the sparse mixer of Phi-3.5-MoE defines them (Liu et al.
// 2024, arXiv 2409.12136). Expert j of a token has the score m. Its weight is its soft-max over the
// experts that were not chosen before it and whose score s is near: (m - s) / max(|s|, m) is at
// most `limit`. So the weights of a token do not add up to 1.
//   in 0 scores (rows, experts), in 1 those chosen (rows, k) i32, by falling scores -> out 0 (rows,
//   k)
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct SparseMixer {
  static constexpr const char* kName = "sparse_mixer";
  float limit = 0.02f;

  static ValueKind kind_in(size_t i) { return i == 1 ? ValueKind::i32 : ValueKind::f32; }

  // A NaN counts as near, so that it is noticed.
  [[gnu::always_inline]] static constexpr bool is_far(float most, float score, float limit) {
    const float size = score < 0 ? -score : score;
    return (most - score) / (size > most ? size : most) > limit;
  }
  [[gnu::always_inline]] static constexpr bool is_before(const int32_t* chosen, int64_t j,
                                                         int64_t expert) {
    for (int64_t i = 0; i < j; ++i)
      if (chosen[i] == expert) return true;
    return false;
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].rows == in[1].rows, "every row of scores has its chosen experts");
    return {in[1]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      for (int64_t j = 0; j < a.in[1].shape.cols; ++j) {
        const int32_t* chosen = a.in[1].ints(t);
        const float *x = a.in[0].row(t), most = x[chosen[j]];
        double sum = 0;
        for (int64_t i = 0; i < a.in[0].shape.cols; ++i)
          if (!is_before(chosen, j, i) && !is_far(most, x[i], limit))
            sum += std::exp(double(x[i]) - most);
        a.out[0].out_row(t)[j] = float(1 / sum);
      }
  }
  static std::vector<Example<SparseMixer>> examples() {
    const auto chosen = [](int64_t rows, int64_t k, int experts) {
      return Input{.shape = {rows, k}, .below = experts};
    };
    return {{{0.5f}, {{{5, 37}}, chosen(5, 2, 37)}},
            {{0.02f}, {{{3, 16}}, chosen(3, 2, 16)}},
            {{2}, {{{2, 6}}, chosen(2, 3, 6)}}};
  }
};

}  // namespace chaski
