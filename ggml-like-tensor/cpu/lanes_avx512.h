// Lanes on AVX-512 F/BW/VL/DQ. With kVnni, byte products use vpdpbusd. With kVbmi, codebook lookups
// use vpermb.
#pragma once
#include <immintrin.h>

#include "ggml-like-tensor/cpu/lanes_scalar.h"

namespace chaski {
namespace {

template <bool kVnni, bool kVbmi>
struct Avx512Lanes {
  using F = __m512;
  using I = __m512i;
  using B = __m512i;
  static constexpr const char* kName = kVbmi ? "avx512vbmi" : kVnni ? "avx512vnni" : "avx512";
  static constexpr bool kWide = true;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F zero() { return _mm512_setzero_ps(); }
  static F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
  }
  static F load_bf16(const uint16_t* p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
  }
  static F load_f8(const uint8_t* p) {  // half.h
    const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p));
    const __m256i h =
        _mm256_and_si256(_mm256_slli_epi16(bytes, 7), _mm256_set1_epi16(int16_t(0xbf80)));
    const __m256i nan =
        _mm256_and_si256(_mm256_add_epi16(h, _mm256_set1_epi16(0x80)), _mm256_set1_epi16(0x4000));
    return mul(_mm512_cvtph_ps(_mm256_or_si256(h, nan)), set1(256));
  }
  static void store_f16(uint16_t* p, F x) {
    _mm256_storeu_si256((__m256i*)p,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F where_less(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static I to_int(F x) { return _mm512_cvtps_epi32(x); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static F pick(const float* table, I i) {
    return _mm512_permutexvar_ps(i, _mm512_zextps256_ps512(_mm256_load_ps(table)));
  }
  static F pick16(const float* table, I i) {
    return _mm512_permutexvar_ps(i, _mm512_load_ps(table));
  }
  static F from_bits(I x) { return _mm512_castsi512_ps(x); }

  static I load_i32(const int32_t* p) { return _mm512_loadu_si512(p); }
  static void store_i32(int32_t* p, I x) { _mm512_storeu_si512(p, x); }
  static I load_u8(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
  }
  static I load_i8(const int8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
  }
  static void store_i8(int8_t* p, I x) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(x)); }
  static I set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
  static I add_i32(I a, I b) { return _mm512_add_epi32(a, b); }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  static I shift_left(I a, int n) { return _mm512_slli_epi32(a, n); }
  static I shift_right(I a, int n) { return _mm512_srli_epi32(a, n); }
  static int32_t sum_i32(I x) { return _mm512_reduce_add_epi32(x); }

  static B load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static B low_nibbles(B b) { return _mm512_and_si512(b, _mm512_set1_epi8(15)); }
  static B high_nibbles(B b) {
    return _mm512_and_si512(_mm512_srli_epi16(b, 4), _mm512_set1_epi8(15));
  }
  static B move_bits(B b, int from, int to, int mask) {
    const B moved = from > to ? _mm512_srli_epi16(b, unsigned(from - to))
                              : _mm512_slli_epi16(b, unsigned(to - from));
    return _mm512_and_si512(moved, _mm512_set1_epi8(char(mask << to)));
  }
  static B or_bytes(B a, B b) { return _mm512_or_si512(a, b); }
  static B choose(B bits, int bit, B a, B b) {
    return _mm512_mask_blend_epi8(_mm512_test_epi8_mask(bits, _mm512_set1_epi8(char(1 << bit))), b,
                                  a);
  }
  static B xor_bytes(B a, B b) { return _mm512_xor_si512(a, b); }
  static B sub_bytes(B a, B b) { return _mm512_sub_epi8(a, b); }
  static B shift_lanes(B b, int n) { return shift_left(b, n); }
  static B bytes(I x) { return x; }
  // vpermb reads 6 bits of an index. The table is in the register four times, so the two bits above
  // the nibble do not matter and need no masking.
  static B lookup_low(const uint8_t* table, B b) {
    const B t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table));
    if constexpr (kVbmi) return _mm512_permutexvar_epi8(b, t);
    return _mm512_shuffle_epi8(t, low_nibbles(b));
  }
  static B lookup_high(const uint8_t* table, B b) {
    return lookup_low(table, kVbmi ? _mm512_srli_epi16(b, 4) : high_nibbles(b));
  }

  static I four(const int8_t* a, int g) {
    int32_t word;
    std::memcpy(&word, a + 4 * g, 4);
    return _mm512_set1_epi32(word);
  }
  template <DotKind K, int kFrom, int kTo>
  static I dot(const B* w, const Act& a) {
    if constexpr (kVnni) {
      // A core cannot look ahead far enough to overlap a chain of eight dependent products with
      // other work, so there are two chains of four (prompt of 512, q4: 251 -> 276 tok/s). Half a
      // block is one chain of four, and the other half does not depend on it.
      constexpr int offset = K.is_signed ? 128 : K.offset, chains = (kTo - kFrom) / 4;
      I s[chains] = {_mm512_set1_epi32(-offset * a.sum<kFrom, kTo>())};
#pragma GCC unroll 8
      for (int g = kFrom; g < kTo; ++g)
        s[g % chains] = _mm512_dpbusd_epi32(
            s[g % chains], K.is_signed ? _mm512_xor_si512(w[g], _mm512_set1_epi8(-128)) : w[g],
            four(a.q, g));
      return chains == 1 ? s[0] : _mm512_add_epi32(s[0], s[chains - 1]);
    } else {
      return dot_runs<K, kFrom, kTo>(w, a.q, _mm512_set1_epi32(-K.offset * a.sum<kFrom, kTo>()),
                                     _mm512_set1_epi16(1));
    }
  }
  // Returns start + products times `scale`, which is the same number in both halves of a lane.
  // Products are first summed in int16, so kRun * 2 * max * 127 must be below 32768. max 15: 8 runs
  // give 30480; 31: 4 runs, 31496; 63: 2 runs, 32004; 127 and |int8| = 128: one run, 32258 and
  // 32512.
  template <DotKind K, int kFrom, int kTo>
  static I dot_runs(const B* w, const int8_t* a, I start, I scale) {
    constexpr int kRun = K.is_signed ? 1 : K.max <= 15 ? 8 : K.max <= 31 ? 4 : K.max <= 63 ? 2 : 1;
    static_assert(K.is_signed || K.max <= 127);
    constexpr int kStep = kRun < kTo - kFrom ? kRun : kTo - kFrom;
#pragma GCC unroll 8
    for (int g = kFrom; g < kTo; g += kStep) {
      I run = product<K>(w[g], four(a, g));
#pragma GCC unroll 8
      for (int h = g + 1; h < g + kStep; ++h)
        run = _mm512_add_epi16(run, product<K>(w[h], four(a, h)));
      start = _mm512_add_epi32(start, _mm512_madd_epi16(run, scale));
    }
    return start;
  }
  // The offset is a factor of the scales: |s * offset| is at most 128 * 32. With kVnni the sums are
  // exact in float too, where vpmulld would take two steps of ten cycles: |offset * half| has the
  // bound of a half's sum (panel.h), so start and the first half together have that of the whole.
  template <DotKind K>
  static F scaled_dot(const B* w, const I* s, const Act& a) {
    static_assert(!K.is_signed && (K.offset == 0 || 2 * K.offset == K.max + 1));
    const auto start = [&] {
      if constexpr (K.offset == 0) return _mm512_setzero_si512();
      const I offsets = _mm512_mullo_epi16(pair(s[0], s[1]), _mm512_set1_epi16(-K.offset));
      return times_pairs(offsets, a.half);
    };
    if constexpr (kVnni) {
      constexpr DotKind codes{.max = K.max};
      const F low = to_float(dot<codes, 0, 4>(w, a)), high = to_float(dot<codes, 4, 8>(w, a));
      const F first =
          K.offset == 0 ? mul(low, to_float(s[0])) : fma(low, to_float(s[0]), to_float(start()));
      return fma(high, to_float(s[1]), first);
    } else {
      const I first = dot_runs<K, 0, 4>(w, a.q, start(), pair(s[0], s[0]));
      return to_float(dot_runs<K, 4, 8>(w, a.q, first, pair(s[1], s[1])));
    }
  }
  static I pair(I low, I high) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
  }
  static I dot_pairs(const I* x, const int16_t* y) { return times_pairs(pair(x[0], x[1]), y); }
  // The pairs of a lane times y[0] and y[1].
  static I times_pairs(I pairs, const int16_t* y) {
    int32_t two;
    std::memcpy(&two, y, sizeof two);
    return _mm512_madd_epi16(pairs, _mm512_set1_epi32(two));
  }
  template <DotKind K>
  static I product(B w, I a) {
    if constexpr (!K.is_signed) return _mm512_maddubs_epi16(w, a);
    // The product is |w| * (a with w's sign), because one factor must be unsigned. |w| and the mask
    // are hoisted out of the loop over tokens.
    return _mm512_maddubs_epi16(
        _mm512_abs_epi8(w),
        _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a));
  }

  // 127 * 128 twice fits into an int16.
  static I dot_four(I s, B b, const uint8_t* weights) {
    const I f = four(reinterpret_cast<const int8_t*>(weights), 0);
    if constexpr (kVnni) return _mm512_dpbusd_epi32(s, f, b);
    return _mm512_add_epi32(s, _mm512_madd_epi16(_mm512_maddubs_epi16(f, b), _mm512_set1_epi16(1)));
  }

  static float sum(F x) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static float maximum(F x) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }
};

}  // namespace
}  // namespace chaski
