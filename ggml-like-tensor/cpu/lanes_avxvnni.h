// Lanes on AVX2 with AVX-VNNI: products of bytes by vpdpbusd in registers of 256 bits. Everything
// else is that of AVX2. Dot is the instruction, which a test replaces: Dot::add(sum, u, s) is sum
// plus the four products of unsigned bytes of u and signed bytes of s in each lane.
#pragma once
#include "ggml-like-tensor/cpu/lanes_avx2.h"

namespace chaski {
namespace {

template <class Dot>
struct AvxVnniLanes : Avx2Lanes {
  static constexpr const char* kName = "avxvnni";

  // Weights as unsigned bytes. Signed ones are moved up by 128, which counts as their offset.
  template <DotKind K>
  static constexpr int kOffset = K.is_signed ? 128 : K.offset;
  template <DotKind K>
  static __m256i factor(__m256i w) {
    return K.is_signed ? _mm256_xor_si256(w, _mm256_set1_epi8(-128)) : w;
  }

  // Two chains of four for one activation, because eight dependent products take longer than a core
  // can look ahead.
  template <DotKind K, int kFrom, int kTo>
  static I dot(const B* w, const Act& a) {
    constexpr int kChains = (kTo - kFrom) / 4;
    I s[kChains] = {set1_i32(-kOffset<K> * a.sum<kFrom, kTo>())};
    for (int c = 1; c < kChains; ++c) s[c] = set1_i32(0);
#pragma GCC unroll 8
    for (int g = kFrom; g < kTo; ++g) {
      const __m256i f = four(a.q, g);
      I& to = s[g % kChains];
      to = {Dot::add(to.a, factor<K>(w[g].a), f), Dot::add(to.b, factor<K>(w[g].b), f)};
    }
    return kChains == 1 ? s[0] : add_i32(s[0], s[kChains - 1]);
  }
  template <DotKind K>
  static __m256i half_dot(const __m256i (&w)[4], const __m256i (&a)[2]) {
    __m256i s[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) s[g / 4] = Dot::add(s[g / 4], factor<K>(w[g % 4]), a[g / 4]);
    return _mm256_add_epi32(s[0], s[1]);
  }
  template <DotKind K, int kFrom, int kTo, int N>
  static void many_dots(const B* w, const Act* a, I* result) {
    for (int n = 0; n < N; ++n) result[n] = set1_i32(-kOffset<K> * a[n].sum<kFrom, kTo>());
#pragma GCC unroll 8
    for (int g = kFrom; g < kTo; ++g) {
      const __m256i low = factor<K>(w[g].a), high = factor<K>(w[g].b);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const __m256i f = four(a[n].q, g);
        result[n] = {Dot::add(result[n].a, low, f), Dot::add(result[n].b, high, f)};
      }
    }
  }
  // vpmulld is slow. The sums are exact in float too (panel.h).
  template <DotKind K, int N>
  static void many_scaled_dots(const B* w, const I* s, const Act* a, F* dots) {
    I half[N];
    many_dots<K, 0, 4, N>(w, a, half);
    for (int n = 0; n < N; ++n) dots[n] = mul(to_float(half[n]), to_float(s[0]));
    many_dots<K, 4, 8, N>(w, a, half);
    for (int n = 0; n < N; ++n) dots[n] = fma(to_float(half[n]), to_float(s[1]), dots[n]);
  }
  template <DotKind K>
  static F scaled_dot(const B* w, const I* s, const Act& a) {
    F dot;
    many_scaled_dots<K, 1>(w, s, &a, &dot);
    return dot;
  }
  static I dot_four(I s, B b, const uint8_t* weights) {
    const __m256i f = four(reinterpret_cast<const int8_t*>(weights), 0);
    return {Dot::add(s.a, f, b.a), Dot::add(s.b, f, b.b)};
  }
};

}  // namespace
}  // namespace chaski
