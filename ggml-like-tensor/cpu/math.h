// exp, tanh and the activations over Lanes, by polynomials of our own, with the same bits on every
// instruction set. Functions that are called take their lanes by reference: gcc 12 copies a value
// of two registers in four parts, and the loads in the function wait for the stores.
#pragma once
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/unary.h"

namespace chaski {
namespace {

// e^x for finite x and -inf. Below -87.3 it is exactly 0, so a masked score has no weight; above
// 88.3 x is clamped. Cody-Waite reduction x = n ln 2 + r, |r| <= 0.347, then the Taylor polynomial
// of degree 7. Relative error below 1.5e-7.
template <class V>
inline __attribute__((always_inline)) typename V::F exp(typename V::F x) {
  const auto clamped = V::min(V::max(x, V::set1(-87.3f)), V::set1(88.3f));
  const auto n = V::to_int(V::mul(clamped, V::set1(1.44269504f)));
  auto r = V::fma(V::to_float(n), V::set1(-0.693359375f), clamped);
  r = V::fma(V::to_float(n), V::set1(2.12194440e-4f), r);
  auto y = V::set1(1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    y = V::fma(y, r, V::set1(c));
  const auto power = V::from_bits(V::shift_left(V::add_i32(n, V::set1_i32(127)), 23));
  return V::where_less(x, V::set1(-87.3f), V::zero(), V::mul(y, power));
}

template <class V>
typename V::F tanh(const typename V::F& x) {
  const auto e = exp<V>(V::add(x, x));
  return V::sub(V::set1(1), V::div(V::set1(2), V::add(e, V::set1(1))));
}

// Abramowitz and Stegun 7.1.26; the error is at most 1.5e-7.
template <class V>
typename V::F erf(const typename V::F& x) {
  const auto size = V::abs(x);
  const auto t = V::div(V::set1(1), V::fma(size, V::set1(0.3275911f), V::set1(1)));
  auto y = V::set1(1.061405429f);
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    y = V::fma(y, t, V::set1(c));
  const auto rest = V::mul(V::mul(y, t), exp<V>(V::sub(V::zero(), V::mul(x, x))));
  const auto above = V::sub(V::set1(1), rest);
  return V::where_less(x, V::zero(), V::sub(V::zero(), above), above);
}

// ln(1 + x) for 0 <= x <= 1, by the series of 2 artanh(x / (2 + x)). Relative error below 1e-7.
template <class V>
typename V::F log1p(const typename V::F& x) {
  const auto s = V::div(x, V::add(V::set1(2), x)), square = V::mul(s, s);
  auto y = V::set1(1.0f / 15);
  for (float c : {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 0.2f, 1.0f / 3, 1.0f})
    y = V::fma(y, square, V::set1(c));
  return V::mul(V::add(s, s), y);
}

// max(x, 0) + ln(1 + e^-|x|). A NaN stays NaN.
template <class V>
typename V::F softplus(const typename V::F& x) {
  const auto above = V::where_less(x, V::zero(), V::zero(), x);
  return V::add(above, log1p<V>(exp<V>(V::sub(V::zero(), V::abs(x)))));
}

// The most frequent activation, for loops that call nothing else.
template <class V>
inline __attribute__((always_inline)) typename V::F silu(const typename V::F& x) {
  return V::div(x, V::add(V::set1(1), exp<V>(V::sub(V::zero(), x))));
}

// A NaN stays NaN, because it is not less than zero.
template <class V>
typename V::F activate(Activation kind, const typename V::F& x) {
  if (kind == Activation::silu) return silu<V>(x);
  if (kind == Activation::gelu_erf)
    return V::mul(V::mul(V::set1(0.5f), x),
                  V::add(V::set1(1), erf<V>(V::mul(x, V::set1(0.70710678f)))));
  if (kind == Activation::relu) return V::where_less(x, V::zero(), V::zero(), x);
  if (kind == Activation::relu2) return V::where_less(x, V::zero(), V::zero(), V::mul(x, x));
  if (kind == Activation::sigmoid)
    return V::div(V::set1(1), V::add(V::set1(1), exp<V>(V::sub(V::zero(), x))));
  if (kind == Activation::softplus) return softplus<V>(x);
  if (kind == Activation::tanh) return tanh<V>(x);
  const auto inner =
      V::mul(V::set1(0.7978845608f), V::fma(V::mul(V::mul(x, x), x), V::set1(0.044715f), x));
  return V::mul(V::mul(V::set1(0.5f), x), V::add(V::set1(1), tanh<V>(inner)));
}

// gpt-oss's gate (ops/binary.h). min and max would lose a NaN.
template <class V>
typename V::F clamped_swiglu(const typename V::F& gate, const typename V::F& up) {
  const auto most = V::set1(Binary::kLimit), least = V::set1(-Binary::kLimit);
  const auto g = V::where_less(most, gate, most, gate);
  const auto u = V::where_less(most, up, most, V::where_less(up, least, least, up));
  const auto power = exp<V>(V::mul(g, V::set1(-Binary::kSlope)));
  return V::mul(V::div(g, V::add(V::set1(1), power)), V::add(u, V::set1(1)));
}

// Loads the last, incomplete vector of a row.
template <class V>
typename V::F load_part(const float* p, int64_t n, float fill = 0) {
  float v[16];
  for (int i = 0; i < 16; ++i) v[i] = i < n ? p[i] : fill;
  return V::load(v);
}
template <class V>
void store_part(float* p, typename V::F x, int64_t n) {
  float v[16];
  V::store(v, x);
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}

// Calls f(offset, count <= 16) over a row of n.
template <class Fn>
void each_vector(int64_t n, Fn fn) {
  for (int64_t i = 0; i < n; i += 16) fn(i, n - i < 16 ? n - i : 16);
}
template <class V>
typename V::F load_n(const float* p, int64_t n, float fill = 0) {
  return n == 16 ? V::load(p) : load_part<V>(p, n, fill);
}
template <class V>
void store_n(float* p, typename V::F x, int64_t n) {
  n == 16 ? V::store(p, x) : store_part<V>(p, x, n);
}

}  // namespace
}  // namespace chaski
