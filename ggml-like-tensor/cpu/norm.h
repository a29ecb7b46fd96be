// Norms, together with the residual addition and the quantization of the result, in one pass over
// the row.
#pragma once
#include "ggml-like-tensor/cpu/quantize.h"
#include "ggml-like-tensor/ops/norm.h"

namespace chaski {
namespace {

template <class V>
struct CpuKernel<Norm, V> {
  static int64_t units(const Norm&, const OpArgs& a) { return a.in[0].shape.rows; }
  static int64_t grain(const Norm&, const OpArgs&) { return 1; }
  static size_t scratch(const Norm&, const OpArgs& a) {
    return 2 * a.in[0].shape.cols * sizeof(float);
  }

  static void run(const Norm& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const int64_t cols = a.in[0].shape.cols, n = cols / op.heads;
    auto* buffer = reinterpret_cast<float*>(scratch.own);
    for (int64_t t = first; t < last; ++t) {
      const float* x = a.in[0].row(t);
      if (op.adds) {
        float* sum = a.out[1].data ? a.out[1].out_row(t) : buffer;
        each_vector(cols, [&](int64_t i, int64_t k) {
          store_n<V>(sum + i, V::add(load_n<V>(x + i, k), load_n<V>(a.in[1].row(t) + i, k)), k);
        });
        x = sum;
      }
      float* y = a.out[0].data ? a.out[0].out_row(t) : buffer + cols;
      for (int h = 0; h < op.heads; ++h) normalize(op, a, h, x + h * n, y + h * n, n);
      if (a.acts.data) quantize_row<V>(y, a.acts, t, 0, cols / 32);
    }
  }
  static void normalize(const Norm& op, const OpArgs& a, int head, const float* x, float* y,
                        int64_t n) {
    float mean = 0;
    if (op.kind == Norm::Kind::layer) {
      auto sum = V::zero();
      each_vector(n, [&](int64_t i, int64_t k) { sum = V::add(sum, load_n<V>(x + i, k)); });
      mean = V::sum(sum) / float(n);
    }
    auto square = V::zero();
    each_vector(n, [&](int64_t i, int64_t k) {
      // missing lanes get the mean, so that they add zero
      const auto c = V::sub(load_n<V>(x + i, k, mean), V::set1(mean));
      square = V::fma(c, c, square);
    });
    const float variance = V::sum(square) / float(n);
    const auto scale =
        V::set1(variance < INFINITY ? 1 / __builtin_sqrtf(variance + op.eps) : __builtin_nanf(""));
    const int64_t at = op.weights_at(a, head);
    const float *w = op.weight(a).floats() + at,
                *b = op.kind == Norm::Kind::layer ? op.bias(a).floats() + at : nullptr;
    each_vector(n, [&](int64_t i, int64_t k) {
      const auto normed = V::mul(V::sub(load_n<V>(x + i, k), V::set1(mean)), scale);
      const auto scaled = V::mul(normed, load_n<V>(w + i, k));
      store_n<V>(y + i, b ? V::add(scaled, load_n<V>(b + i, k)) : scaled, k);
    });
  }
};

}  // namespace
}  // namespace chaski
