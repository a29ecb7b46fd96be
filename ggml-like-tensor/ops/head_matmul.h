// y = x W^T for each head by itself: a head has a slice of x's columns and a matrix of its own.
//   in 0 x (rows, heads * cols); in 1 weight (heads * n, cols), a head's rows after the last head's
//   -> out 0 (rows, heads * n)
//
// The order of additions is that of matmul. It is what multi-head latent attention needs before and
// after the attention over its compressed cache (models/blocks/mla.h).
#pragma once
#include "ggml-like-tensor/ops/matmul.h"

namespace chaski {

struct HeadMatMul {
  static constexpr const char* kName = "head_matmul";
  static constexpr bool kReadsActs = true;
  int heads = 1;

  int64_t outputs(const OpArgs& a) const { return a.in[1].shape.rows / heads; }  // of a head
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == heads * in[1].cols, "x must have a slice for each head");
    ENSURE(in[1].rows % (heads * kStrip) == 0, "the rows of a head must be whole strips");
    return {{in[0].rows, in[1].rows}};
  }
  Cost cost(const OpArgs& a) const {
    const double flops =
        2.0 * double(a.in[0].shape.rows) * double(a.in[1].shape.rows) * double(a.in[1].shape.cols);
    return {weight_bytes(a.in[1]), flops, reads_acts(a.in[1].format) ? flops : 0};
  }
  // Input 0 as the slice of one head: its first block of quantized columns, or its first column.
  static ActsView acts_of(const OpArgs& a, int64_t group, int64_t head) {
    const int64_t blocks = a.in[1].shape.cols / 32, width = a.in_acts.width(group);
    return {a.in_acts.group(group) + head * blocks * width, width, blocks};
  }
  void reference(const OpArgs& a) const {
    const int64_t n = outputs(a), cols = a.in[1].shape.cols;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      for (int64_t r = 0; r < a.in[1].shape.rows; ++r) {
        const int64_t head = r / n;
        const Operand x{{1, cols}, Format::f32, const_cast<float*>(a.in[0].row(t)) + head * cols};
        const ActsView acts = a.in_acts.data ? acts_of(a, t / kGroup, head) : ActsView{};
        a.out[0].out_row(t)[r] = reads_acts(a.in[1].format)
                                     ? matmul_at(a.in[1], r, a.in[0], acts, t % kGroup)
                                     : matmul_at(a.in[1], r, x, acts, 0);
      }
  }
  static std::vector<Example<HeadMatMul>> examples() {
    std::vector<Example<HeadMatMul>> out;
    for (Format f : {Format::f32, Format::f16, Format::q4, Format::q8, Format::q4_0, Format::q5_0})
      for (int64_t tokens : {1, 3, 40})
        out.push_back({{4}, {{{tokens, 4 * 64}}, {{4 * 48, 64}, f, true}}, tokens});
    out.push_back({{2}, {{{19, 2 * 512}}, {{2 * 128, 512}, Format::q4_k, true}}, 19});
    out.push_back({{3}, {{{10, 3 * 77}}, {{3 * 16, 77}, Format::bf16, true}}, 10});
    out.push_back({{16}, {{{2, 16 * 32}}, {{16 * 64, 32}, Format::q8, true}}, 2});
    return out;
  }
};

}  // namespace chaski
