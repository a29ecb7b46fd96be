// act(x Wg^T) * (x Wu^T), or gpt-oss's gate of both (binary.h), with weights chosen for every row:
// the first half of a mixture's feed-forward. fuse() makes it of two expert_matmuls whose weights
// have one format.
//   in 0 x; in 1 gate and in 2 up (experts * outputs, cols); in 3 experts (tokens, chosen) i32; in
//   4 and 5 the biases of all experts (1, experts * outputs) if `bias`
//   -> out 0 (tokens * chosen, outputs) and / or acts. Rows and order are those of expert_matmul.
#pragma once
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/expert_matmul.h"
#include "ggml-like-tensor/ops/gated_matmul.h"

namespace chaski {

struct GatedExpertMatMul {
  static constexpr const char* kName = "gated_expert_matmul";
  static constexpr bool kReadsActs = true;
  int experts = 1;
  Activation kind = Activation::silu;
  bool clamped = false;  // gpt-oss's gate instead of the activation
  bool bias = false;

  static ValueKind kind_in(size_t i) { return i == 3 ? ValueKind::i32 : ValueKind::f32; }
  bool leaves_acts() const { return true; }

  // The expert_matmul by weight 0 (gate) or 1 (up).
  ExpertMatMul plain() const { return {experts, bias}; }
  OpArgs plain_args(const OpArgs& a, int weight) const {
    OpArgs of = a;
    of.in[1] = a.in[1 + weight], of.in[2] = a.in[3], of.n_in = 3 + int(bias);
    if (bias) of.in[3] = a.in[4 + weight];
    return of;
  }
  float value(float gate, float up) const {
    return clamped ? Binary::clamped_swiglu(gate, up) : float(activate(kind, gate)) * up;
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch& batch) const {
    ENSURE(in[1] == in[2] && (!bias || in[4] == in[5]), "gate and up must have one shape");
    std::vector<Shape> gate{in[0], in[1], in[3]};
    if (bias) gate.push_back(in[4]);
    return plain().shapes(gate, batch);
  }
  Cost cost(const OpArgs& a) const {
    Cost sum;
    for (int w = 0; w < 2; ++w) {
      const Cost one = plain().cost(plain_args(a, w));
      sum.bytes += one.bytes, sum.flops += one.flops, sum.integer += one.integer;
    }
    return sum;
  }
  void reference(const OpArgs& a) const {
    const OpArgs gate = plain_args(a, 0);
    const int64_t n = plain().outputs(gate);
    std::vector<float> out(n);
    for (int64_t row = 0; row < a.in[3].shape.rows * a.in[3].shape.cols; ++row) {
      const int64_t expert = ExpertMatMul::expert_of(gate, row), first = expert * n,
                    x = ExpertMatMul::input_of(gate, row);
      for (int64_t r = 0; r < n; ++r) {
        float sums[2];
        for (int w = 0; w < 2; ++w) {
          const float* biases = plain().biases(plain_args(a, w), expert);
          sums[w] = matmul_at(a.in[1 + w], first + r, a.in[0], a.in_acts, x);
          if (biases) sums[w] += biases[r];
        }
        out[r] = value(sums[0], sums[1]);
      }
      if (a.out[0].data) std::copy(out.begin(), out.end(), a.out[0].out_row(row));
      if (a.acts.data) QuantizeActs::row(out.data(), a.acts, row);
    }
  }
  static std::vector<Example<GatedExpertMatMul>> examples() {
    std::vector<Example<GatedExpertMatMul>> out;
    const auto example = [&](int experts, int64_t outputs, int64_t cols, Format f, int64_t tokens,
                             int64_t chosen, bool row_each = false) {
      const Activation kind = tokens == 3 ? Activation::gelu : Activation::silu;
      out.push_back({{experts, kind},
                     {{{row_each ? tokens * chosen : tokens, cols}},
                      {{experts * outputs, cols}, f, true},
                      {{experts * outputs, cols}, f, true},
                      {.shape = {tokens, chosen}, .below = experts}},
                     tokens});
    };
    for (const Format f : {Format::f32, Format::q4, Format::q8, Format::q6_k, Format::q4_0})
      for (const int64_t tokens : {1, 3, 40}) example(4, 96, 256, f, tokens, 2);
    example(64, 64, 512, Format::q4_0, 1, 8);
    example(3, 48, 77, Format::f16, 5, 2);  // no whole block of the quantized result
    example(3, 32, 288, Format::q8, 18, 2, true);
    for (const Format f : {Format::f32, Format::mxfp4})
      for (const int64_t tokens : {1, 3, 21}) {
        example(4, 96, 96, f, tokens, 3);
        out.back().op.clamped = out.back().op.bias = true;
        for (int w = 0; w < 2; ++w) out.back().in.push_back({{1, 4 * 96}, Format::f32, true});
      }
    return out;
  }
};

}  // namespace chaski
