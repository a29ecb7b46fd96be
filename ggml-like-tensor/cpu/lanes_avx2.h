// Lanes on AVX2 + FMA + F16C: two registers hold the sixteen lanes, the low rows first.
#pragma once
#include <immintrin.h>

#include <bit>

#include "ggml-like-tensor/cpu/lanes_scalar.h"

namespace chaski {
namespace {

// Byte i of each of a table's 16 floats.
template <const auto& kTable>
struct BytePlanes {
  struct Planes {
    uint8_t of[4][16];
  };
  static constexpr Planes planes() {
    Planes p{};
    for (int i = 0; i < 64; ++i)
      p.of[i / 16][i % 16] =
          uint8_t(std::bit_cast<uint32_t>(float(kTable[i % 16])) >> 8 * (i / 16));
    return p;
  }
  alignas(64) static constexpr Planes kPlanes = planes();
};

struct Avx2Lanes {
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  using B = I;
  // Eight lanes: one register, so that a loop can have twice as many sums of different numbers.
  struct Half {
    using F = __m256;
    static F load(const float* p) {
      F x = _mm256_loadu_ps(p);
      asm("" : "+x"(x));  // gcc 12 would load it again for each use
      return x;
    }
    static F load_f16(const uint16_t* p) { return _mm256_cvtph_ps(half(p)); }
    static F load_bf16(const uint16_t* p) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half(p)), 16));
    }
    static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
    static F zero() { return _mm256_setzero_ps(); }
    static F add(F x, F y) { return _mm256_add_ps(x, y); }
    static F fma(F x, F y, F z) { return _mm256_fmadd_ps(x, y, z); }
    static Avx2Lanes::F sums(const F* of) { return {sums_of_eight(of), sums_of_eight(of + 8)}; }
  };
  static constexpr const char* kName = "avx2";
  static constexpr bool kWide = false;

  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
  static F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static __m128i half(const uint16_t* p) { return _mm_loadu_si128((const __m128i*)p); }
  static F load_f16(const uint16_t* p) { return {Half::load_f16(p), Half::load_f16(p + 8)}; }
  static F load_bf16(const uint16_t* p) { return {Half::load_bf16(p), Half::load_bf16(p + 8)}; }
  static F load_f8(const uint8_t* p) {  // half.h
    const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p));
    const __m256i h =
        _mm256_and_si256(_mm256_slli_epi16(bytes, 7), _mm256_set1_epi16(int16_t(0xbf80)));
    const __m256i nan =
        _mm256_and_si256(_mm256_add_epi16(h, _mm256_set1_epi16(0x80)), _mm256_set1_epi16(0x4000));
    const __m256i halves = _mm256_or_si256(h, nan);
    return mul({_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))},
               set1(256));
  }
  static void store_f16(uint16_t* p, F x) {
    _mm_storeu_si128((__m128i*)p,
                     _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i*)(p + 8),
                     _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static F abs(F x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
  }
  static F where_less(F x, F y, F yes, F no) {
    return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
  }
  static I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  static F pick(const float* table, I i) {
    return {_mm256_permutevar8x32_ps(_mm256_load_ps(table), i.a),
            _mm256_permutevar8x32_ps(_mm256_load_ps(table), i.b)};
  }
  // Lane r of out[k] is kTable[codes[16 k + r] >> shift & 15]. Bytes are looked up: selecting whole
  // floats takes two permutations and a blend for 8 of them, twice as many instructions.
  static constexpr bool kPicksBytes = true;
  template <const auto& kTable>
  static void pick_two(const uint8_t* codes, int shift, F* out) {
    __m256i code = _mm256_srl_epi16(at(codes, 0), _mm_cvtsi32_si128(shift));
    code = _mm256_and_si256(code, _mm256_set1_epi8(15));
    // rows 0-3, 8-11 of the first column, then of the second; in the upper half 4-7, 12-15
    code = _mm256_permutevar8x32_epi32(code, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    const auto bytes = [&](int i) {
      const auto* plane = (const __m128i*)(BytePlanes<kTable>::kPlanes.of[i]);
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(plane)), code);
    };
    const auto floats = [](__m256i low, __m256i high) {
      return F{_mm256_castsi256_ps(_mm256_unpacklo_epi16(low, high)),
               _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, high))};
    };
    const __m256i b0 = bytes(0), b1 = bytes(1), b2 = bytes(2), b3 = bytes(3);
    out[0] = floats(_mm256_unpacklo_epi8(b0, b1), _mm256_unpacklo_epi8(b2, b3));
    out[1] = floats(_mm256_unpackhi_epi8(b0, b1), _mm256_unpackhi_epi8(b2, b3));
  }
  static F from_bits(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

  static __m256i at(const void* p, int i) { return _mm256_loadu_si256((const __m256i*)p + i); }
  static I load_i32(const int32_t* p) { return {at(p, 0), at(p, 1)}; }
  static void store_i32(int32_t* p, I x) {
    _mm256_storeu_si256((__m256i*)p, x.a), _mm256_storeu_si256((__m256i*)p + 1, x.b);
  }
  static __m128i eight(const void* p, int i) {
    return _mm_loadl_epi64((const __m128i*)((const char*)p + 8 * i));
  }
  static I load_u8(const uint8_t* p) {
    return {_mm256_cvtepu8_epi32(eight(p, 0)), _mm256_cvtepu8_epi32(eight(p, 1))};
  }
  static I load_i8(const int8_t* p) {
    return {_mm256_cvtepi8_epi32(eight(p, 0)), _mm256_cvtepi8_epi32(eight(p, 1))};
  }
  static void store_i8(int8_t* p, I x) {
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(_mm256_castsi256_si128(halves),
                                                  _mm256_extracti128_si256(halves, 1)));
  }
  static I set1_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I add_i32(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
  static I bit_and(I x, I y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
  static I bit_or(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
  static I shift_left(I x, int n) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
  static I shift_right(I x, int n) {
    return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
  }
  static int32_t sum_i32(I x) {
    const __m256i s = _mm256_add_epi32(x.a, x.b);
    const __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    const __m128i u = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(u, _mm_shuffle_epi32(u, 0xb1)));
  }

  static B load_bytes(const void* p) { return {at(p, 0), at(p, 1)}; }
  static B low_nibbles(B x) { return bit_and(x, {_mm256_set1_epi8(15), _mm256_set1_epi8(15)}); }
  static B high_nibbles(B x) {
    return low_nibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
  }
  static B move_bits(B x, int from, int to, int mask) {
    auto moved = [=](__m256i v) {
      v = from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
      return _mm256_and_si256(v, _mm256_set1_epi8(char(mask << to)));
    };
    return {moved(x.a), moved(x.b)};
  }
  static B or_bytes(B x, B y) { return bit_or(x, y); }
  static B choose(B bits, int bit, B x, B y) {
    return {_mm256_blendv_epi8(y.a, x.a, _mm256_slli_epi16(bits.a, 7 - bit)),
            _mm256_blendv_epi8(y.b, x.b, _mm256_slli_epi16(bits.b, 7 - bit))};
  }
  static B xor_bytes(B x, B y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
  static B sub_bytes(B x, B y) { return {_mm256_sub_epi8(x.a, y.a), _mm256_sub_epi8(x.b, y.b)}; }
  static B shift_lanes(B x, int n) { return shift_left(x, n); }
  static B bytes(I x) { return x; }
  static B lookup(const uint8_t* table, B x) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table));
    return {_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
  }
  static B lookup_low(const uint8_t* table, B b) { return lookup(table, low_nibbles(b)); }
  static B lookup_high(const uint8_t* table, B b) { return lookup(table, high_nibbles(b)); }

  static __m256i four(const int8_t* a, int g) {
    int32_t word;
    std::memcpy(&word, a + 4 * g, 4);
    return _mm256_set1_epi32(word);
  }
  // A weight prepared for multiplication. One factor must be unsigned, so the product is |w| * (a
  // with w's sign).
  template <DotKind K>
  struct Factor {
    __m256i w, size;
    explicit Factor(__m256i x) : w(x), size(K.is_signed ? _mm256_abs_epi8(x) : x) {}
    __m256i times(__m256i a) const {
      return _mm256_maddubs_epi16(size, K.is_signed ? _mm256_sign_epi8(a, w) : a);
    }
  };
  template <DotKind K, int kFrom, int kTo>
  static I dot(const B* w, const Act& a) {
    I s = set1_i32(-K.offset * a.sum<kFrom, kTo>());
    dot_runs<K, kFrom, kTo, 1>(w, a.q, &s, set1_i32(0x10001));
    return s;
  }
  // How many products fit into an int16: lanes_avx512.h has the bounds.
  template <DotKind K>
  static constexpr int run_length(int most) {
    static_assert(K.is_signed || K.max <= 127);
    const int run = K.is_signed ? 1 : K.max <= 15 ? 8 : K.max <= 31 ? 4 : K.max <= 63 ? 2 : 1;
    return run < most ? run : most;
  }
  // Adds to s[n] the products of activation n, whose codes begin n Acts after `a`. A weight is
  // loaded once for all N of them. Zen 3 starts four vector instructions a clock, loads included,
  // and two of them may multiply; so the fewest instructions win, and spills cost as much as
  // products. Sixteen registers hold either the 2 N sums of int16 of a long run, or the 2 N sums of
  // int32 with the weights of a run of two.
  static constexpr bool kManyAtOnce = true;
  template <DotKind K, int kFrom, int kTo, int N>
  static void dot_runs(const B* w, const int8_t* a, I* s, I scale) {
    constexpr int kRun = run_length<K>(kTo - kFrom);
#pragma GCC unroll 8
    for (int g = kFrom; g < kTo; g += kRun) {
      if constexpr (kRun <= 2) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
          s[n].a = add_run<K, kRun, &I::a>(w + g, a + n * sizeof(Act) + 4 * g, s[n].a, scale.a);
          s[n].b = add_run<K, kRun, &I::b>(w + g, a + n * sizeof(Act) + 4 * g, s[n].b, scale.b);
          if constexpr (N > 1) in_order(s[n].a, s[n].b);
        }
      } else {
        __m256i x[N], y[N];
#pragma GCC unroll 8
        for (int h = g; h < g + kRun; ++h) {
          const Factor<K> low(w[h].a), high(w[h].b);
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) {
            const __m256i f = four(a + n * sizeof(Act), h), p = low.times(f), q = high.times(f);
            x[n] = h == g ? p : _mm256_add_epi16(x[n], p);
            y[n] = h == g ? q : _mm256_add_epi16(y[n], q);
            if (h < g + kRun - 1) {
              if constexpr (N > 1) in_order(x[n], y[n]);
            } else {
              s[n].a = _mm256_add_epi32(s[n].a, _mm256_madd_epi16(x[n], scale.a));
              s[n].b = _mm256_add_epi32(s[n].b, _mm256_madd_epi16(y[n], scale.b));
              if constexpr (N > 1) in_order(s[n].a, s[n].b);
            }
          }
        }
      }
    }
  }
  template <DotKind K, int kRun, __m256i I::*kHalf>
  static __m256i add_run(const B* w, const int8_t* a, __m256i s, __m256i scale) {
    __m256i x = Factor<K>(w[0].*kHalf).times(four(a, 0));
    if constexpr (kRun == 2) x = _mm256_add_epi16(x, Factor<K>(w[1].*kHalf).times(four(a, 1)));
    return _mm256_add_epi32(s, _mm256_madd_epi16(x, scale));
  }
  // Without this, gcc 12 computes all products first and adds them up from memory.
  static void in_order(__m256i& x, __m256i& y) { asm("" : "+x"(x), "+x"(y)); }
  // The products of 8 rows and 32 columns, from registers: columns 4g..4g+3 are w[g % 4] and
  // a[g / 4]. For peak.h, which measures how many the processor can do.
  template <DotKind K>
  static __m256i half_dot(const __m256i (&w)[4], const __m256i (&a)[2]) {
    constexpr int kRun = run_length<K>(8);
    __m256i s = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < 8; g += kRun) {
      __m256i x = Factor<K>(w[g % 4]).times(a[g / 4]);
#pragma GCC unroll 8
      for (int h = g + 1; h < g + kRun; ++h)
        x = _mm256_add_epi16(x, Factor<K>(w[h % 4]).times(a[h / 4]));
      s = _mm256_add_epi32(s, _mm256_madd_epi16(x, _mm256_set1_epi16(1)));
    }
    return s;
  }
  // result[n]: dot<K, kFrom, kTo> of activation n.
  template <DotKind K, int kFrom, int kTo, int N>
  static void many_dots(const B* w, const Act* a, I* result) {
    for (int n = 0; n < N; ++n) result[n] = set1_i32(-K.offset * a[n].sum<kFrom, kTo>());
    dot_runs<K, kFrom, kTo, N>(w, a->q, result, set1_i32(0x10001));
  }
  // dots[n]: scaled_dot<K> of activation n. The offset is a factor of the scales: |s * offset| is
  // at most 128 * 64.
  template <DotKind K, int N>
  static void many_scaled_dots(const B* w, const I* s, const Act* a, F* dots) {
    static_assert(K.offset <= 64);
    const __m256i factor = _mm256_set1_epi16(-K.offset);
    const I both = pair(s[0], s[1]);
    const I offsets{_mm256_mullo_epi16(both.a, factor), _mm256_mullo_epi16(both.b, factor)};
    I sums[N];
    for (int n = 0; n < N; ++n)
      sums[n] = K.offset == 0 ? set1_i32(0) : times_pairs(offsets, a[n].half);
    dot_runs<K, 0, 4, N>(w, a->q, sums, twice(s[0]));
    dot_runs<K, 4, 8, N>(w, a->q, sums, twice(s[1]));
    for (int n = 0; n < N; ++n) dots[n] = to_float(sums[n]);
  }
  template <DotKind K>
  static F scaled_dot(const B* w, const I* s, const Act& a) {
    F dot;
    many_scaled_dots<K, 1>(w, s, &a, &dot);
    return dot;
  }
  // The low 16 bits of a lane, in both halves of it.
  static I twice(I x) {
    const __m256i bytes = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    return {_mm256_shuffle_epi8(x.a, bytes), _mm256_shuffle_epi8(x.b, bytes)};
  }
  static I pair(I low, I high) {
    high = shift_left(high, 16);
    return {_mm256_blend_epi16(low.a, high.a, 0xaa), _mm256_blend_epi16(low.b, high.b, 0xaa)};
  }
  static I dot_pairs(const I* x, const int16_t* y) { return times_pairs(pair(x[0], x[1]), y); }
  // The pairs of a lane times y[0] and y[1].
  static I times_pairs(I pairs, const int16_t* y) {
    int32_t two;
    std::memcpy(&two, y, sizeof two);
    const __m256i factor = _mm256_set1_epi32(two);
    return {_mm256_madd_epi16(pairs.a, factor), _mm256_madd_epi16(pairs.b, factor)};
  }

  // 127 * 128 twice fits into an int16.
  static I dot_four(I s, B b, const uint8_t* weights) {
    const __m256i ones = _mm256_set1_epi16(1),
                  f = four(reinterpret_cast<const int8_t*>(weights), 0);
    return {_mm256_add_epi32(s.a, _mm256_madd_epi16(_mm256_maddubs_epi16(f, b.a), ones)),
            _mm256_add_epi32(s.b, _mm256_madd_epi16(_mm256_maddubs_epi16(f, b.b), ones))};
  }

  // Lane k: sum(of[k]), by the same additions.
  static F sums(const F* of) { return {sums_of_eight(of), sums_of_eight(of + 8)}; }
  static __m256 halves_added(const F& x) { return _mm256_add_ps(x.a, x.b); }
  static __m256 halves_added(__m256 x) { return x; }
  template <class T>
  static __m256 sums_of_eight(const T* of) {
    const auto both = [&](int i) {  // lanes i and i + 4, of two
      const __m256 x = halves_added(of[i]), y = halves_added(of[i + 1]);
      return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
    };
    const auto four = [&](int i) {  // lanes i and i + 2, of the first, third | second, fourth
      const __m256 x = both(i), y = both(i + 2);
      return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
    };
    const __m256 x = four(0), y = four(4),
                 mixed =
                     _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd));
    return _mm256_permutevar8x32_ps(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  static float sum(F x) {
    const __m256 a = _mm256_add_ps(x.a, x.b);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static float maximum(F x) {
    const __m256 a = _mm256_max_ps(x.a, x.b);
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }
};

}  // namespace
}  // namespace chaski
