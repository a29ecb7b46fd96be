// The router of a mixture of experts: which experts compute a token, and the weights of their
// results.
//   in 0 x (rows, experts); in 1 bias (1, experts) if `bias`
//   -> out 0 the chosen experts (rows, k) i32, each divided by `sharing`: `sharing`
//      neighbouring experts get the number of their group; out 1 their weights (rows, k)
// 1. The score of an expert is the sigmoid of its x, or its part of the soft-max of the row.
// 2. The k experts with the largest score + bias are chosen, largest first, as top_k does. If there
//    are several groups of neighbouring experts, only those in the `kept` best groups take part. A
//    group's rank is its largest score + bias, or the sum of its two largest. Of equal groups the
//    earlier one is better.
// 3. A weight is the score without the bias. If `normalised`, it is divided by the sum of the
//    weights, added first to last. Then it is multiplied by `scale`.
// Sources: DeepSeek-V2 (2024), section 2.2.2: the largest of a group. DeepSeek-V3 (2024), section
// 2.1.2: the sum of two. ERNIE 4.5 (2025) adds a bias to a soft-max.
#pragma once
#include "ggml-like-tensor/ops/top_k.h"

namespace chaski {

struct Route {
  static constexpr const char* kName = "route";
  static constexpr float kLeastSum = 1e-20f;  // of weights that are normalised
  static constexpr int kMostGroups = 64;
  enum class Score { soft_max, sigmoid } score = Score::soft_max;
  enum class Rank { sum_of_two, largest } rank = Rank::sum_of_two;
  int k = 1, groups = 1, kept = 1;
  bool bias = false, normalised = false;
  float scale = 1;
  int sharing = 1;

  static ValueKind kind_out(size_t i) { return i == 0 ? ValueKind::i32 : ValueKind::f32; }
  const float* biases(const OpArgs& a) const { return bias ? a.in[1].floats() : nullptr; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(groups > 0 && groups <= kMostGroups && in[0].cols % groups == 0,
           "groups must have the same number of experts");
    ENSURE(kept > 0 && kept <= groups, "kept must be between 1 and the number of groups");
    ENSURE(groups == 1 || in[0].cols / groups > 1, "a group must have at least two experts");
    ENSURE(k > 0 && k <= in[0].cols / groups * kept,
           "k must be at most the experts that take part");
    ENSURE(!bias || in[1] == (Shape{1, in[0].cols}), "every expert must have a bias");
    ENSURE(sharing > 0 && in[0].cols % sharing == 0, "sharing must divide the number of experts");
    return {{in[0].rows, k}, {in[0].rows, k}};
  }
  Cost cost(const OpArgs&) const { return {}; }

  // The rank of a group, from the choices of its `size` experts.
  [[gnu::always_inline]] constexpr float rank_of(const float* choice, int64_t size) const {
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < size; ++i) {
      if (choice[i] > first)
        second = first, first = choice[i];
      else if (choice[i] > second)
        second = choice[i];
    }
    return rank == Rank::largest ? first : first + second;
  }
  // Whether `kept` groups or more are better than group g.
  [[gnu::always_inline]] constexpr bool drops(const float* ranks, int g) const {
    int better = 0;
    for (int other = 0; other < groups; ++other)
      better += ranks[other] > ranks[g] || (ranks[other] == ranks[g] && other < g);
    return better >= kept;
  }
  // Sets the choices in all groups but the kept ones to -infinity. `n`: of all experts.
  [[gnu::always_inline]] void drop_groups(float* choice, int64_t n) const {
    const int64_t size = n / groups;
    float ranks[kMostGroups];
    for (int g = 0; g < groups; ++g) ranks[g] = rank_of(choice + g * size, size);
    for (int g = 0; g < groups; ++g)
      if (drops(ranks, g))
        for (int64_t i = 0; i < size; ++i) choice[g * size + i] = -INFINITY;
  }
  // Chooses and weighs, when the scores are known. `choice`: scores with their biases.
  [[gnu::always_inline]] void choose(const float* scores, float* choice, int64_t n, int32_t* best,
                                     float* weights) const {
    if (groups > 1) drop_groups(choice, n);
    int found = 0;
    for (int32_t i = 0; i < n; ++i) {
      const uint32_t at_i = TopK::rank(choice[i]);
      if (found == k && at_i <= TopK::rank(choice[best[found - 1]])) continue;
      int at = found < k ? found++ : found - 1;
      for (; at > 0 && TopK::rank(choice[best[at - 1]]) < at_i; --at) best[at] = best[at - 1];
      best[at] = i;
    }
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += scores[best[i]];
    sum = sum < kLeastSum ? kLeastSum : sum;
    for (int i = 0; i < k; ++i)
      weights[i] = (normalised ? scores[best[i]] / sum : scores[best[i]]) * scale;
    for (int i = 0; i < k; ++i) best[i] /= sharing;
  }

  void reference(const OpArgs& a) const {
    const int64_t n = a.in[0].shape.cols;
    std::vector<float> scores(size_t(n), 0), choice(size_t(n), 0);
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      const float* x = a.in[0].row(t);
      double most = -INFINITY, sum = 0;
      for (int64_t i = 0; i < n; ++i) most = std::max<double>(most, x[i]);
      for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - most);
      for (int64_t i = 0; i < n; ++i) {
        scores[size_t(i)] = float(score == Score::sigmoid ? 1 / (1 + std::exp(-double(x[i])))
                                                          : std::exp(x[i] - most) / sum);
        choice[size_t(i)] = bias ? scores[size_t(i)] + biases(a)[i] : scores[size_t(i)];
      }
      choose(scores.data(), choice.data(), n, a.out[0].out_ints(t), a.out[1].out_row(t));
    }
  }
  static std::vector<Example<Route>> examples() {
    const auto row = [](int64_t n) { return Input{{1, n}, Format::f32, true}; };
    constexpr Rank two = Rank::sum_of_two, one = Rank::largest;
    return {{{Score::soft_max, two, 4}, {{{5, 37}}}},
            {{Score::soft_max, two, 8, 1, 1, true, true}, {{{3, 128}}, row(128)}},
            {{Score::soft_max, one, 3, 4, 2, false, false, 16}, {{{7, 24}}}},
            {{Score::sigmoid, two, 6, 1, 1, true, true, 2.5f}, {{{3, 64}}, row(64)}},
            {{Score::sigmoid, two, 3, 4, 2, true, true, 1.5f}, {{{7, 24}}, row(24)}},
            {{Score::sigmoid, two, 1, 3, 1, false, false}, {{{2, 6}}}},
            {{Score::soft_max, two, 4, 1, 1, false, true, 1, 3}, {{{5, 36}}}}};
  }
};

}  // namespace chaski
