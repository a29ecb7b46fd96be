// The limit of arithmetic, measured with the instructions the kernels multiply with: dot<K> of one panel with activations that stay in
// L1, or fma in registers. Nothing is unpacked, scaled or fetched from memory, so no matmul can be faster. Not a kernel: results are dropped.
#pragma once
#include "quant/formats.h"

namespace chaski {
namespace {

// Four dots in flight cover the latency of each other; the store of a result has a port of its own.
template <class V, DotKind K>
__attribute__((noinline)) int64_t dot_peak(int64_t rounds) {
  constexpr int kDots = 4;
  alignas(64) uint8_t bytes[64] = {};
  alignas(64) int8_t acts[kDots][32] = {};
  asm volatile("" : "+m"(bytes), "+m"(acts));  // could be anything
  typename V::B w[8];
  for (auto& g : w) g = V::load_bytes(bytes);
  for (int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < kDots; ++n) {
      const int8_t* a = acts[n];
      asm volatile("" : "+r"(a));  // not the activations of the last round, for all the compiler knows
      const auto sum = V::template dot<K, 0, 8>(w, a, 0);
      asm volatile("" : : "m"(sum));
    }
  return rounds * kDots * 16 * 32 * 2;
}

template <class V>
__attribute__((noinline)) int64_t fma_peak(int64_t rounds) {
  constexpr int kChains = V::kWide ? 12 : 6;  // latency 4, two a cycle; on 16 registers no more fit
  float one = 1;
  asm volatile("" : "+m"(one));
  const auto x = V::set1(one);
  typename V::F acc[kChains];
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int n = 0; n < kChains; ++n) acc[n] = V::fma(x, x, acc[n]);
  for (auto& a : acc) asm volatile("" : : "m"(a));
  return rounds * kChains * 16 * 2;
}

// Operations done: a multiplication and an addition each.
template <class V>
int64_t peak(Format format, int64_t rounds) {
  int64_t done = 0;
  Formats::with(format, [&]<class F>(F) {
    if constexpr (F::kFloat) done = fma_peak<V>(rounds);
    else done = dot_peak<V, F::kDot>(rounds);
  });
  return done;
}

}  // namespace
}  // namespace chaski
