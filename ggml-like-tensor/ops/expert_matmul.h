// y = x W^T (+ bias) with a weight chosen for every row of y. The `experts` weights are stored one
// after another as the rows of one tensor; i32 values name the expert.
//   in 0 x (tokens, cols) or (tokens * chosen, cols); in 1 weights (experts * outputs, cols),
//   outputs a multiple of 16; in 2 experts (tokens, chosen) i32, each below `experts`; then the
//   biases of all experts (1, experts * outputs) if `bias`
//   -> out 0 (tokens * chosen, outputs): row t * chosen + j is computed with expert (t, j). It
//   reads row t of x if x has one row for each token, otherwise row t * chosen + j.
// The bits are those of a matmul with that expert's weight and bias alone.
#pragma once
#include "ggml-like-tensor/ops/matmul.h"

namespace chaski {

// How many different experts `tokens` tokens choose, each `chosen` of `experts`: the expected
// number if all are equally likely. It is exact for one token.
inline double different_experts(double experts, double chosen, double tokens) {
  return tokens == 1 ? chosen : experts * (1 - std::pow(1 - chosen / experts, tokens));
}

struct ExpertMatMul {
  static constexpr const char* kName = "expert_matmul";
  static constexpr bool kReadsActs = true;
  int experts = 1;
  bool bias = false;

  static ValueKind kind_in(size_t i) { return i == 2 ? ValueKind::i32 : ValueKind::f32; }

  // The expert of a row of y; its row of x.
  static int32_t expert_of(const OpArgs& a, int64_t row) { return a.in[2].ints(0)[row]; }
  static int64_t input_of(const OpArgs& a, int64_t row) {
    return a.in[0].shape.rows == a.in[2].shape.rows ? row / a.in[2].shape.cols : row;
  }
  int64_t outputs(const OpArgs& a) const { return a.in[1].shape.rows / experts; }
  // The biases of an expert's outputs, or null.
  const float* biases(const OpArgs& a, int64_t expert) const {
    return bias ? a.in[3].floats() + expert * outputs(a) : nullptr;
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    const int64_t rows = in[2].rows * in[2].cols, outputs = in[1].rows / experts;
    ENSURE(in[1].cols == in[0].cols, "a weight must have as many columns as the activation");
    ENSURE(in[1].rows == outputs * experts && outputs % kStrip == 0,
           "the rows of an expert must be whole strips");
    ENSURE(in[0].rows == in[2].rows || in[0].rows == rows,
           "x must have a row for each token or for each expert");
    ENSURE(!bias || in[3] == (Shape{1, in[1].rows}), "every output of an expert has a bias");
    return {{rows, outputs}};
  }
  Cost cost(const OpArgs& a) const {
    const double tokens = double(a.in[2].shape.rows), chosen = double(a.in[2].shape.cols),
                 flops = 2 * tokens * chosen * double(outputs(a)) * double(a.in[0].shape.cols);
    return {weight_bytes(a.in[1]) / experts * different_experts(experts, chosen, tokens), flops,
            reads_acts(a.in[1].format) ? flops : 0};
  }
  void reference(const OpArgs& a) const {
    const int64_t n = outputs(a);
    for (int64_t row = 0; row < a.in[2].shape.rows * a.in[2].shape.cols; ++row)
      for (int64_t r = 0; r < n; ++r) {
        const int32_t expert = expert_of(a, row);
        const float y = matmul_at(a.in[1], expert * n + r, a.in[0], a.in_acts, input_of(a, row));
        a.out[0].out_row(row)[r] = bias ? y + biases(a, expert)[r] : y;
      }
  }
  static std::vector<Example<ExpertMatMul>> examples() {
    std::vector<Example<ExpertMatMul>> out;
    const auto chosen = [](int64_t tokens, int64_t k, int experts) {
      return Input{.shape = {tokens, k}, .below = experts};
    };
    for (Format f : {Format::f32, Format::f16, Format::q4, Format::q8, Format::q6_k, Format::q5_0})
      for (int64_t tokens : {1, 3, 40})
        out.push_back(
            {{4}, {{{tokens, 256}}, {{4 * 48, 256}, f, true}, chosen(tokens, 2, 4)}, tokens});
    out.push_back({{8}, {{{7, 1056}}, {{8 * 176, 1056}, Format::q4_0, true}, chosen(7, 3, 8)}, 7});
    out.push_back({{3}, {{{10, 77}}, {{3 * 16, 77}, Format::bf16, true}, chosen(5, 2, 3)}, 5});
    out.push_back({{3}, {{{36, 288}}, {{3 * 32, 288}, Format::q8, true}, chosen(18, 2, 3)}, 18});
    for (Format f : {Format::f32, Format::mxfp4})
      for (int64_t tokens : {1, 21})
        out.push_back({{4, true},
                       {{{tokens, 96}},
                        {{4 * 80, 96}, f, true},
                        chosen(tokens, 3, 4),
                        {{1, 4 * 80}, Format::f32, true}},
                       tokens});
    return out;
  }
};

}  // namespace chaski
