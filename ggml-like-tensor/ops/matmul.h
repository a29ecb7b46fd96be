// y = x W^T (+ bias), for up to three weights that share x, such as q, k and v.
//   in 0 x (rows, cols); in 1..n weights (out_i, cols); then n biases (1, out_i) if `bias`
//   -> out 0..n-1 (rows, out_i)
// Integer formats read x quantized (in_acts), one block of 32 after another (quant/panel.h). Float
// formats read f32: for each 32 columns one chain of fma from zero, then one add. So the order of
// additions depends on the row alone. Floats under a scale (quant/packed/scaled_floats.h) have
// codes in that chain, and one fma with the scale instead of the add.
#pragma once
#include "ggml-like-tensor/ops/operand.h"
#include "quant/formats.h"

namespace chaski {

inline bool reads_acts(Format f) { return !info(f).floating; }

// One output: row r of w times row t of x.
inline float matmul_at(const Operand& w, int64_t r, const Operand& x, const ActsView& acts,
                       int64_t t) {
  const std::byte* strip = w.bytes() + r / kStrip * strip_bytes(w.format, w.shape.cols);
  const int row = int(r % kStrip);
  float acc = 0;
  Formats::with(w.format, [&]<class F>(F) {
    const StripOf<F> s(strip);
    if constexpr (kScaledFloat<F>) {
      for (int64_t from = 0; from < w.shape.cols; from += F::kBlock) {
        const auto block = F::get(s.tiles()[from / F::kBlock], row);
        for (int first = 0; first < F::kBlock; first += 32) {
          float part = 0;
          for (int c = first; c < first + 32; ++c)
            part = std::fma(F::code(block, c), x.row(t)[from + c], part);
          acc = std::fma(part, block.d, acc);
        }
      }
    } else if constexpr (F::kFloat) {
      for (int64_t from = 0; from < w.shape.cols; from += 32) {
        float part = 0;
        for (int64_t c = from; c < std::min(from + 32, w.shape.cols); ++c)
          part = std::fma(F::at(F::get(s.tiles()[c], row), 0), x.row(t)[c], part);
        acc += part;
      }
    } else {
      for (int64_t from = 0; from < w.shape.cols; from += F::kBlock) {
        const auto block = F::get(s.tiles()[from / F::kBlock], row);
        for (int sub = 0; sub < F::kBlock / 32; ++sub) {
          RowPanel panel;
          s.row(row).panel(block, sub, panel);
          acc = dot_block(F::kDot, panel, acts.at(t, from / 32 + sub), acc);
        }
      }
    }
  });
  return acc;
}

inline double weight_bytes(const Operand& w) {
  return double(strip_bytes(w.format, w.shape.cols)) / kStrip * double(w.shape.rows);
}

struct MatMul {
  static constexpr const char* kName = "matmul";
  static constexpr bool kReadsActs = true;
  int weights = 1;
  bool bias = false;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    std::vector<Shape> out;
    for (int i = 0; i < weights; ++i) {
      ENSURE(in[1 + i].cols == in[0].cols, "a weight must have as many columns as the activation");
      out.push_back({in[0].rows, in[1 + i].rows});
    }
    return out;
  }
  Cost cost(const OpArgs& a) const {
    Cost c;
    for (int i = 0; i < weights; ++i) {
      const double flops = 2.0 * double(a.in[0].shape.rows) * double(a.in[1 + i].shape.rows) *
                           double(a.in[0].shape.cols);
      c.bytes += weight_bytes(a.in[1 + i]), c.flops += flops;
      if (reads_acts(a.in[1 + i].format)) c.integer += flops;
    }
    return c;
  }
  void reference(const OpArgs& a) const {
    for (int i = 0; i < weights; ++i)
      for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
        for (int64_t r = 0; r < a.in[1 + i].shape.rows; ++r) {
          const float y = matmul_at(a.in[1 + i], r, a.in[0], a.in_acts, t);
          a.out[i].out_row(t)[r] = bias ? y + a.in[1 + weights + i].floats()[r] : y;
        }
  }
  static std::vector<Example<MatMul>> examples() {
    std::vector<Example<MatMul>> out;
    for (int f = 0; f < kFormatCount; ++f) {
      const Format format = Format(f);
      const int64_t cols = info(format).block == 1 ? 77 : 512;
      for (int64_t tokens : {1, 2, 3, 7, 16, 35})
        out.push_back({{1, false}, {{{tokens, cols}}, {{50, cols}, format, true}}, tokens});
      out.push_back({{3, true},
                     {{{3, cols}},
                      {{32, cols}, format, true},
                      {{16, cols}, format, true},
                      {{33, cols}, format, true},
                      {{1, 32}, Format::f32, true},
                      {{1, 16}, Format::f32, true},
                      {{1, 33}, Format::f32, true}},
                     3});
    }
    for (const Format few : {Format::f16, Format::bf16})  // shapes of outlier columns
      for (int64_t tokens : {1, 3, 35})
        out.push_back({{1, false}, {{{tokens, 3}}, {{50, 3}, few, true}}, tokens});
    return out;
  }
};

}  // namespace chaski
