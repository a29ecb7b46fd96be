// Lanes on AArch64 NEON: four registers hold the sixteen lanes. Byte products use vmull_s8, which
// every ARMv8 has. All stored bytes fit into int8 after the offset is subtracted in int8.
#pragma once
#include <arm_neon.h>

#include "ggml-like-tensor/cpu/lanes_scalar.h"

namespace chaski {
namespace {

struct NeonLanes {
  struct F {
    float32x4_t v[4];
  };
  struct I {
    int32x4_t v[4];
  };
  struct B {
    uint8x16_t v[4];
  };
  static constexpr const char* kName = "neon";
  static constexpr bool kWide = false;

  template <class R, class Fn>
  static R each(Fn fn) {
    R r;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) r.v[i] = fn(i);
    return r;
  }
  static F load(const float* p) {
    return each<F>([=](int i) { return vld1q_f32(p + 4 * i); });
  }
  static void store(float* p, F x) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
  }
  static F set1(float x) {
    return each<F>([=](int) { return vdupq_n_f32(x); });
  }
  static F zero() { return set1(0); }
  static F load_f16(const uint16_t* p) {
    return each<F>([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
  }
  static F load_bf16(const uint16_t* p) {
    return each<F>(
        [=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
  }
  static F load_f8(const uint8_t* p) {  // half.h
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
    auto halves = [](int8x8_t b) {
      const int16x8_t h = vandq_s16(vshll_n_s8(b, 7), vdupq_n_s16(int16_t(0xbf80)));
      return vreinterpretq_f16_s16(
          vorrq_s16(h, vandq_s16(vaddq_s16(h, vdupq_n_s16(0x80)), vdupq_n_s16(0x4000))));
    };
    const float16x8_t low = halves(vget_low_s8(bytes)), high = halves(vget_high_s8(bytes));
    const F f = {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
                 vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
    return mul(f, set1(256));
  }
  static void store_f16(uint16_t* p, F x) {
    for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
  }
  static F add(F a, F b) {
    return each<F>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static F sub(F a, F b) {
    return each<F>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static F mul(F a, F b) {
    return each<F>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static F div(F a, F b) {
    return each<F>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static F fma(F a, F b, F c) {
    return each<F>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  static F max(F a, F b) {
    return each<F>([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }
  static F min(F a, F b) {
    return each<F>([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }
  static F abs(F a) {
    return each<F>([&](int i) { return vabsq_f32(a.v[i]); });
  }
  static F where_less(F a, F b, F yes, F no) {
    return each<F>([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i]); });
  }
  static I to_int(F x) {
    return each<I>([&](int i) { return vcvtnq_s32_f32(x.v[i]); });
  }
  static F to_float(I x) {
    return each<F>([&](int i) { return vcvtq_f32_s32(x.v[i]); });
  }
  static F pick(const float* table, I x) {
    const uint8x16x2_t t = {vld1q_u8((const uint8_t*)table), vld1q_u8((const uint8_t*)table + 16)};
    return each<F>([&](int i) {  // the four bytes of entry x
      const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), vreinterpretq_u32_s32(x.v[i]),
                                         vdupq_n_u32(0x04040404));
      return vreinterpretq_f32_u8(vqtbl2q_u8(t, vreinterpretq_u8_u32(bytes)));
    });
  }
  static F pick16(const float* table, I x) {
    const auto* t = (const uint8_t*)table;
    const uint8x16x4_t all = {vld1q_u8(t), vld1q_u8(t + 16), vld1q_u8(t + 32), vld1q_u8(t + 48)};
    return each<F>([&](int i) {
      const uint32x4_t entry = vandq_u32(vreinterpretq_u32_s32(x.v[i]), vdupq_n_u32(15));
      const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), entry, vdupq_n_u32(0x04040404));
      return vreinterpretq_f32_u8(vqtbl4q_u8(all, vreinterpretq_u8_u32(bytes)));
    });
  }
  static F from_bits(I x) {
    return each<F>([&](int i) { return vreinterpretq_f32_s32(x.v[i]); });
  }

  static I load_i32(const int32_t* p) {
    return each<I>([=](int i) { return vld1q_s32(p + 4 * i); });
  }
  static void store_i32(int32_t* p, I x) {
    for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, x.v[i]);
  }
  template <class T>
  static I widen(const T* p) {
    return each<I>([=](int i) {
      return int32x4_t{p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
    });
  }
  static I load_u8(const uint8_t* p) { return widen(p); }
  static I load_i8(const int8_t* p) { return widen(p); }
  static void store_i8(int8_t* p, I x) {
    int32_t v[16];
    store_i32(v, x);
    for (int i = 0; i < 16; ++i) p[i] = int8_t(v[i]);
  }
  static I set1_i32(int32_t x) {
    return each<I>([=](int) { return vdupq_n_s32(x); });
  }
  static I add_i32(I a, I b) {
    return each<I>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
  }
  static I mul_i32(I a, I b) {
    return each<I>([&](int i) { return vmulq_s32(a.v[i], b.v[i]); });
  }
  static I bit_and(I a, I b) {
    return each<I>([&](int i) { return vandq_s32(a.v[i], b.v[i]); });
  }
  static I bit_or(I a, I b) {
    return each<I>([&](int i) { return vorrq_s32(a.v[i], b.v[i]); });
  }
  static I shift_left(I a, int n) {
    return each<I>([&](int i) { return vshlq_s32(a.v[i], vdupq_n_s32(n)); });
  }
  static I shift_right(I a, int n) {
    return each<I>([&](int i) {
      return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v[i]), vdupq_n_s32(-n)));
    });
  }
  static int32_t sum_i32(I x) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
  }

  static B load_bytes(const void* p) {
    return each<B>([=](int i) { return vld1q_u8((const uint8_t*)p + 16 * i); });
  }
  static B low_nibbles(B b) {
    return each<B>([&](int i) { return vandq_u8(b.v[i], vdupq_n_u8(15)); });
  }
  static B high_nibbles(B b) {
    return each<B>([&](int i) { return vshrq_n_u8(b.v[i], 4); });
  }
  static B move_bits(B b, int from, int to, int mask) {
    return each<B>([&](int i) {
      return vandq_u8(vshlq_u8(b.v[i], vdupq_n_s8(int8_t(to - from))),
                      vdupq_n_u8(uint8_t(mask << to)));
    });
  }
  static B or_bytes(B a, B b) {
    return each<B>([&](int i) { return vorrq_u8(a.v[i], b.v[i]); });
  }
  static B choose(B bits, int bit, B a, B b) {
    return each<B>([&](int i) {
      return vbslq_u8(vtstq_u8(bits.v[i], vdupq_n_u8(uint8_t(1 << bit))), a.v[i], b.v[i]);
    });
  }
  static B xor_bytes(B a, B b) {
    return each<B>([&](int i) { return veorq_u8(a.v[i], b.v[i]); });
  }
  static B shift_lanes(B b, int n) {
    return each<B>([&](int i) {
      return vreinterpretq_u8_u32(vshlq_u32(vreinterpretq_u32_u8(b.v[i]), vdupq_n_s32(n)));
    });
  }
  static B bytes(I x) {
    return each<B>([&](int i) { return vreinterpretq_u8_s32(x.v[i]); });
  }
  static B lookup(const uint8_t* table, B b) {
    return each<B>([&](int i) { return vqtbl1q_u8(vld1q_u8(table), b.v[i]); });
  }
  static B lookup_low(const uint8_t* table, B b) { return lookup(table, low_nibbles(b)); }
  static B lookup_high(const uint8_t* table, B b) { return lookup(table, high_nibbles(b)); }
  template <DotKind K, int kFrom, int kTo>
  static I dot(const B* w, const Act& a) {
    I s = set1_i32(0);
    for (int g = kFrom; g < kTo; ++g) {
      int32_t word;
      std::memcpy(&word, a.q + 4 * g, 4);
      const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(word));
      for (int i = 0; i < 4; ++i) {
        const int8x16_t q = vreinterpretq_s8_u8(vsubq_u8(w[g].v[i], vdupq_n_u8(uint8_t(K.offset))));
        const int16x8_t low = vmull_s8(vget_low_s8(q), vget_low_s8(x)), high = vmull_high_s8(q, x);
        s.v[i] = vaddq_s32(s.v[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
      }
    }
    return s;
  }
  template <DotKind K>
  static F scaled_dot(const B* w, const I* s, const Act& a) {
    return to_float(add_i32(mul_i32(s[0], dot<K, 0, 4>(w, a)), mul_i32(s[1], dot<K, 4, 8>(w, a))));
  }
  static I dot_pairs(const I* x, const int16_t* y) {
    return add_i32(mul_i32(x[0], set1_i32(y[0])), mul_i32(x[1], set1_i32(y[1])));
  }
  static I dot_four(I s, B b, const uint8_t* four) {
    int32_t word;
    std::memcpy(&word, four, 4);
    const int8x16_t f = vreinterpretq_s8_s32(vdupq_n_s32(word));
    return each<I>([&](int i) {
      const int8x16_t x = vreinterpretq_s8_u8(b.v[i]);
      const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(f)), high = vmull_high_s8(x, f);
      return vaddq_s32(s.v[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
    });
  }
  static ScalarLanes::F plain(F x) {
    ScalarLanes::F r;
    store(r.v, x);
    return r;
  }
  static float sum(F x) { return ScalarLanes::sum(plain(x)); }
  static float maximum(F x) { return ScalarLanes::maximum(plain(x)); }
};

}  // namespace
}  // namespace chaski
