// RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016), with the residual addition
// before it if `adds`. `heads` > 1: each of `heads` slices of a row is normed by itself. A slice
// has its own weight (and bias), or all share one, which then has cols / heads columns.
//   in 0 x (rows, cols); then in 1 r (rows, cols) if adds; then weight (1, cols or cols / heads);
//   then bias, of the same shape, for layer norm
//   -> out 0 normed (rows, cols) and / or acts, and if adds out 1 = x + r
// If the sum of squares of a row overflows, the row becomes NaN. Dividing by infinity would give
// zeros and hide that the numbers have diverged.
#pragma once
#include "ggml-like-tensor/ops/quantize_acts.h"

namespace chaski {

struct Norm {
  static constexpr const char* kName = "norm";
  enum class Kind { rms, layer } kind = Kind::rms;
  float eps = 1e-5f;
  bool adds = false;
  int heads = 1;

  const Operand& weight(const OpArgs& a) const { return a.in[adds ? 2 : 1]; }
  const Operand& bias(const OpArgs& a) const { return a.in[adds ? 3 : 2]; }

  // The index of a slice's first weight.
  int64_t weights_at(const OpArgs& a, int64_t head) const {
    return weight(a).shape.cols == a.in[0].shape.cols ? head * a.in[0].shape.cols / heads : 0;
  }

  bool leaves_acts() const { return heads == 1; }
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    const int64_t weights = in[adds ? 2 : 1].cols;
    ENSURE(in[0].cols % heads == 0 && (weights == in[0].cols || weights == in[0].cols / heads),
           "heads must divide the row evenly");
    return adds ? std::vector<Shape>{in[0], in[0]} : std::vector<Shape>{in[0]};
  }
  Cost cost(const OpArgs&) const { return {}; }
  void reference(const OpArgs& a) const {
    const int64_t cols = a.in[0].shape.cols, n = cols / heads;
    std::vector<float> x(cols), y(cols);
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      for (int64_t i = 0; i < cols; ++i)
        x[i] = adds ? a.in[0].row(t)[i] + a.in[1].row(t)[i] : a.in[0].row(t)[i];
      if (adds && a.out[1].data) std::copy(x.begin(), x.end(), a.out[1].out_row(t));
      for (int h = 0; h < heads; ++h) slice(a, h, x.data() + h * n, y.data() + h * n, n);
      if (a.out[0].data) std::copy(y.begin(), y.end(), a.out[0].out_row(t));
      if (a.acts.data) QuantizeActs::row(y.data(), a.acts, t);
    }
  }
  void slice(const OpArgs& a, int head, const float* x, float* y, int64_t n) const {
    const int64_t at = weights_at(a, head);
    double mean = 0, square = 0;
    if (kind == Kind::layer)
      for (int64_t i = 0; i < n; ++i) mean += x[i] / double(n);
    for (int64_t i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean) / double(n);
    if (!(square * double(n) <= std::numeric_limits<float>::max())) square = NAN;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = float((x[i] - mean) / std::sqrt(square + eps)) * weight(a).floats()[at + i];
      if (kind == Kind::layer) y[i] += bias(a).floats()[at + i];
    }
  }
  static std::vector<Example<Norm>> examples() {
    const Input w64{{1, 64}, Format::f32, true}, w45{{1, 45}, Format::f32, true},
        w135{{1, 135}, Format::f32, true};
    return {
        {{Kind::rms, 1e-5f, false}, {{{3, 64}}, w64}},
        {{Kind::rms, 1e-6f, true}, {{{17, 64}}, {{17, 64}}, w64}},
        {{Kind::rms, 1e-5f, false}, {{{3, 45}}, w45}},
        {{Kind::layer, 1e-5f, false}, {{{3, 45}}, w45, w45}},
        {{Kind::layer, 1e-5f, true}, {{{2, 64}}, {{2, 64}}, w64, w64}},
        {{Kind::rms, 1e-6f, false, 4}, {{{5, 256}}, w64}},
        {{Kind::layer, 1e-5f, false, 3}, {{{2, 135}}, w45, w45}},
        {{Kind::layer, 1e-5f, false, 3}, {{{2, 135}}, w135, w135}},
    };
  }
};

}  // namespace chaski
