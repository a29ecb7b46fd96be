// act(x Wg^T) * (x Wu^T): the first half of a gated feed-forward (Shazeer 2020).
//   in 0 x (rows, cols), in 1 gate (out, cols), in 2 up (out, cols)
//   -> out 0 (rows, out) and / or acts
#pragma once
#include "ggml-like-tensor/ops/matmul.h"
#include "ggml-like-tensor/ops/quantize_acts.h"
#include "ggml-like-tensor/ops/unary.h"

namespace chaski {

struct GatedMatMul {
  static constexpr const char* kName = "gated_matmul";
  static constexpr bool kReadsActs = true;
  Activation kind = Activation::silu;

  bool leaves_acts() const { return true; }
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    return {{in[0].rows, in[1].rows}};
  }
  Cost cost(const OpArgs& a) const {
    const double flops =
        4.0 * double(a.in[0].shape.rows) * double(a.in[1].shape.rows) * double(a.in[0].shape.cols);
    return {weight_bytes(a.in[1]) + weight_bytes(a.in[2]), flops,
            reads_acts(a.in[1].format) ? flops : 0};
  }
  void reference(const OpArgs& a) const {
    std::vector<float> row(a.in[1].shape.rows);
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      for (int64_t r = 0; r < a.in[1].shape.rows; ++r)
        row[r] = float(activate(kind, matmul_at(a.in[1], r, a.in[0], a.in_acts, t))) *
                 matmul_at(a.in[2], r, a.in[0], a.in_acts, t);
      if (a.out[0].data) std::copy(row.begin(), row.end(), a.out[0].out_row(t));
      if (a.acts.data) QuantizeActs::row(row.data(), a.acts, t);
    }
  }
  static std::vector<Example<GatedMatMul>> examples() {
    std::vector<Example<GatedMatMul>> out;
    for (Format f : {Format::f32, Format::q4, Format::q8, Format::q6_k, Format::q4_0})
      for (int64_t tokens : {1, 5, 18})
        out.push_back({{tokens == 5 ? Activation::gelu : Activation::silu},
                       {{{tokens, 256}}, {{96, 256}, f, true}, {{96, 256}, f, true}},
                       tokens});
    out.push_back({{Activation::silu},
                   {{{2, 40}}, {{50, 40}, Format::f16, true}, {{50, 40}, Format::f16, true}},
                   2});
    return out;
  }
};

}  // namespace chaski
