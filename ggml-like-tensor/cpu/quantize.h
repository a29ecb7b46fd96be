// Quantizes activations to 8 bits: the vector form of ops/quantize_acts.h, with the same bits.
#pragma once
#include "ggml-like-tensor/cpu/kernel.h"
#include "ggml-like-tensor/cpu/math.h"
#include "ggml-like-tensor/ops/quantize_acts.h"

namespace chaski {
namespace {

// x and y: the first and the last 16 values.
template <class V>
void quantize_halves(const float* x, const float* y, Act& a) {
  const auto x0 = V::load(x), x1 = V::load(y);
  const float most = V::maximum(V::max(V::abs(x0), V::abs(x1)));
  const bool finite = V::sum(V::add(V::mul(x0, V::zero()), V::mul(x1, V::zero()))) == 0;
  if (!finite) {
    __builtin_memset(&a, 0, sizeof a);
    a.d = a.ds = __builtin_nanf("");
    return;
  }
  const auto inverse = V::set1(most > QuantizeActs::kSmallest ? 127 / most : 0);
  const auto q0 = V::to_int(V::mul(x0, inverse)), q1 = V::to_int(V::mul(x1, inverse));
  V::store_i8(a.q, q0), V::store_i8(a.q + 16, q1);
  a.d = most / 127;
  a.set_sums(V::sum_i32(q0), V::sum_i32(q1));
}

template <class V>
void quantize_block(const float* x, Act& a) {
  quantize_halves<V>(x, x + 16, a);
}

template <class V>
void quantize_row(const float* x, const ActsView& acts, int64_t row, int64_t first_block,
                  int64_t blocks) {
  for (int64_t b = 0; b < blocks; ++b) quantize_block<V>(x + 32 * b, acts.at(row, first_block + b));
}

template <class V>
struct CpuKernel<QuantizeActs, V> {
  static int64_t units(const QuantizeActs&, const OpArgs& a) { return a.in[0].shape.rows; }
  static int64_t grain(const QuantizeActs&, const OpArgs&) { return 1; }
  static size_t scratch(const QuantizeActs&, const OpArgs&) { return 0; }
  static void run(const QuantizeActs&, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    for (int64_t r = first; r < last; ++r)
      quantize_row<V>(a.in[0].row(r), a.acts, r, 0, a.acts.blocks);
  }
};

}  // namespace
}  // namespace chaski
