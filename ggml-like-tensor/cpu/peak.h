// Measures the limit of arithmetic with the instructions of the kernels: dot<K> of a panel with
// activations in L1, or fma in registers. Nothing is unpacked, scaled or loaded from memory. This
// is not a kernel: results are dropped.
#pragma once
#include <type_traits>

#include "ggml-like-tensor/cpu/strip.h"

namespace chaski {
namespace {

// Makes the compiler believe that x is used. If x is in a register it stays there, which costs no
// instruction.
template <class T>
inline __attribute__((always_inline)) void keep(const T& x) {
  if constexpr (std::is_class_v<T>)
    asm volatile("" : : "m"(x));
  else
    asm volatile("" : : "x"(x));
}

// Lanes of two registers: the products of 8 rows. Four weights and two words of activations stay in
// registers; sixteen registers have no room for a panel.
template <class V, DotKind K>
__attribute__((noinline)) int64_t half_dot_peak(int64_t rounds) {
  alignas(64) uint8_t bytes[64] = {};
  asm volatile("" : "+m"(bytes));  // its contents are unknown to the compiler
  const typename V::B b = V::load_bytes(bytes);
  auto w0 = b.a, w1 = b.b, w2 = b.a, w3 = b.b, a0 = b.a, a1 = b.b;
  asm volatile("" : "+x"(w0), "+x"(w1), "+x"(w2), "+x"(w3));
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(a0), "+x"(a1));  // not those of the last round, for the compiler
    const decltype(w0) w[] = {w0, w1, w2, w3}, a[] = {a0, a1};
    keep(V::template half_dot<K>(w, a));
  }
  return rounds * 8 * 32 * 2;
}

// Two panels share the loads of the activations, so that the loads are not the limit.
template <class V, DotKind K>
__attribute__((noinline)) int64_t dot_peak(int64_t rounds) {
  constexpr int kDots = 4, kPanels = 2;
  alignas(64) uint8_t bytes[kPanels][64] = {};
  alignas(64) Act acts[kDots] = {};
  asm volatile("" : "+m"(bytes), "+m"(acts));  // their contents are unknown to the compiler
  typename V::B w[kPanels][8];
  for (int p = 0; p < kPanels; ++p)
    for (auto& g : w[p]) g = V::load_bytes(bytes[p]);
  for (int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < kDots; ++n) {
      const Act* a = &acts[n];
      // the compiler must not know that these are the activations of the last round
      asm volatile("" : "+r"(a));
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) keep(V::template dot<K, 0, 8>(w[p], *a));
    }
  return rounds * kDots * kPanels * 16 * 32 * 2;
}

template <class V>
__attribute__((noinline)) int64_t fma_peak(int64_t rounds) {
  constexpr int kChains = V::kWide ? 12 : 6;  // latency 4, two a cycle; limited by 16 registers
  float one = 1;
  asm volatile("" : "+m"(one));
  const auto x = V::set1(one);
  typename V::F acc[kChains];
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int n = 0; n < kChains; ++n) acc[n] = V::fma(x, x, acc[n]);
  for (auto& a : acc) keep(a);
  return rounds * kChains * 16 * 2;
}

// Returns the operations done; a multiplication and an addition count as two.
template <class V, class F>
int64_t peak(int64_t rounds) {
  if constexpr (F::kFloat)
    return fma_peak<V>(rounds);
  else if constexpr (kManyAtOnce<V>)
    return half_dot_peak<V, F::kDot>(8 * rounds);
  else
    return dot_peak<V, F::kDot>(rounds);
}

}  // namespace
}  // namespace chaski
