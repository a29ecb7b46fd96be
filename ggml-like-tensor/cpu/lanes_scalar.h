// Lanes: the narrow interface between kernels and instruction sets. There are sixteen lanes of
// float (F) or int32 (I), and 64 bytes (B), of which lane r has bytes 4r..4r+3. Every instruction
// set provides the same names with the same results, bit for bit; this file is the definition.
// max(a, b) is a > b ? a : b, as on x86. dot<K, kFrom, kTo> is exact: the sum over groups g of
// (w[g] - offset) * a[4g..4g+3]; `sum` is the sum of those a.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/panel.h"

namespace chaski {
namespace {

struct ScalarLanes {
  struct F {
    float v[16];
  };
  struct I {
    int32_t v[16];
  };
  struct B {
    uint8_t v[64];
  };
  static constexpr const char* kName = "scalar";
  static constexpr bool kWide = false;     // whether there are enough registers for 16 accumulators
  static constexpr bool kFewSizes = true;  // strip.h

  template <class Fn>
  static F each_f(Fn fn) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }
  template <class Fn>
  static I each_i(Fn fn) {
    I r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }

  static F load(const float* p) {
    return each_f([=](int i) { return p[i]; });
  }
  static void store(float* p, F x) { std::memcpy(p, x.v, sizeof x.v); }
  static F set1(float x) {
    return each_f([=](int) { return x; });
  }
  static F zero() { return set1(0); }
  static F load_f16(const uint16_t* p) {
    return each_f([=](int i) { return f32_of_f16(p[i]); });
  }
  static F load_bf16(const uint16_t* p) {
    return each_f([=](int i) { return f32_of_bf16(p[i]); });
  }
  static F load_f8(const uint8_t* p) {
    return each_f([=](int i) { return f32_of_f8(p[i]); });
  }
  static void store_f16(uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = f16_of_f32(x.v[i]);
  }
  static F add(F a, F b) {
    return each_f([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return each_f([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return each_f([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return each_f([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F fma(F a, F b, F c) {
    return each_f([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  static F max(F a, F b) {
    return each_f([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F min(F a, F b) {
    return each_f([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F abs(F a) {
    return each_f([&](int i) { return std::fabs(a.v[i]); });
  }
  static F where_less(F a, F b, F yes, F no) {
    return each_f([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
  }
  // rounds to nearest even
  static I to_int(F x) {
    return each_i([&](int i) { return int32_t(std::nearbyint(x.v[i])); });
  }
  static F to_float(I x) {
    return each_f([&](int i) { return float(x.v[i]); });
  }
  // table[i] for i in 0..7; the table has 32-byte alignment
  static F pick(const float* table, I i) {
    return each_f([&](int r) { return table[i.v[r]]; });
  }
  // table[i % 16]; the table has 64-byte alignment
  static F pick16(const float* table, I i) {
    return each_f([&](int r) { return table[i.v[r] & 15]; });
  }
  static F from_bits(I x) { return std::bit_cast<F>(x); }

  static I load_i32(const int32_t* p) {
    return each_i([=](int i) { return p[i]; });
  }
  static void store_i32(int32_t* p, I x) { std::memcpy(p, x.v, sizeof x.v); }
  static I load_u8(const uint8_t* p) {
    return each_i([=](int i) { return p[i]; });
  }
  static I load_i8(const int8_t* p) {
    return each_i([=](int i) { return p[i]; });
  }
  static void store_i8(int8_t* p, I x) {  // values must be in range
    for (int i = 0; i < 16; ++i) p[i] = int8_t(x.v[i]);
  }
  static I set1_i32(int32_t x) {
    return each_i([=](int) { return x; });
  }
  static I add_i32(I a, I b) {
    return each_i([&](int i) { return a.v[i] + b.v[i]; });
  }
  static I mul_i32(I a, I b) {
    return each_i([&](int i) { return a.v[i] * b.v[i]; });
  }
  static I bit_and(I a, I b) {
    return each_i([&](int i) { return a.v[i] & b.v[i]; });
  }
  static I bit_or(I a, I b) {
    return each_i([&](int i) { return a.v[i] | b.v[i]; });
  }
  static I shift_left(I a, int n) {
    return each_i([&](int i) { return int32_t(uint32_t(a.v[i]) << n); });
  }
  static I shift_right(I a, int n) {
    return each_i([&](int i) { return int32_t(uint32_t(a.v[i]) >> n); });
  }
  static int32_t sum_i32(I x) {
    int32_t s = 0;
    for (int v : x.v) s += v;
    return s;
  }

  static B load_bytes(const void* p) {
    B b;
    std::memcpy(b.v, p, 64);
    return b;
  }
  static B low_nibbles(B b) {
    for (auto& x : b.v) x &= 15;
    return b;
  }
  static B high_nibbles(B b) {
    for (auto& x : b.v) x >>= 4;
    return b;
  }
  // ((b >> from) & mask) << to, of every byte
  static B move_bits(B b, int from, int to, int mask) {
    for (auto& x : b.v) x = uint8_t((x >> from & mask) << to);
    return b;
  }
  static B or_bytes(B a, B b) {
    for (int i = 0; i < 64; ++i) a.v[i] |= b.v[i];
    return a;
  }
  // Each byte of `a` if bit `bit` of the byte in `bits` is set, otherwise of `b`.
  static B choose(B bits, int bit, B a, B b) {
    for (int i = 0; i < 64; ++i) b.v[i] = bits.v[i] >> bit & 1 ? a.v[i] : b.v[i];
    return b;
  }
  static B xor_bytes(B a, B b) {
    for (int i = 0; i < 64; ++i) a.v[i] ^= b.v[i];
    return a;
  }
  // Shifts the 32 bits of every lane up by n; byte 4r is the lowest.
  static B shift_lanes(B b, int n) {
    for (int r = 0; r < 16; ++r) {
      uint32_t word;
      std::memcpy(&word, b.v + 4 * r, 4);
      word <<= n;
      std::memcpy(b.v + 4 * r, &word, 4);
    }
    return b;
  }
  static B bytes(I x) { return std::bit_cast<B>(x); }
  // table[b] of every byte 0..15; the next two: of every low and every high nibble
  static B lookup(const uint8_t* table, B b) {
    for (auto& x : b.v) x = table[x];
    return b;
  }
  static B lookup_low(const uint8_t* table, B b) { return lookup(table, low_nibbles(b)); }
  static B lookup_high(const uint8_t* table, B b) { return lookup(table, high_nibbles(b)); }
  template <DotKind K, int kFrom, int kTo>
  static I dot(const B* w, const Act& a) {
    return each_i([&](int r) {
      int32_t s = -K.offset * a.sum<kFrom, kTo>();
      for (int g = kFrom; g < kTo; ++g)
        for (int k = 0; k < 4; ++k)
          s += (K.is_signed ? int8_t(w[g].v[4 * r + k]) : w[g].v[4 * r + k]) * a.q[4 * g + k];
      return s;
    });
  }

  // s[0] * the sum over columns 0..15 + s[1] * the sum over columns 16..31. panel.h bounds it by
  // 2^24.
  template <DotKind K>
  static F scaled_dot(const B* w, const I* s, const Act& a) {
    return to_float(add_i32(mul_i32(s[0], dot<K, 0, 4>(w, a)), mul_i32(s[1], dot<K, 4, 8>(w, a))));
  }
  // x[0] * y[0] + x[1] * y[1]; all factors have 16 bits
  static I dot_pairs(const I* x, const int16_t* y) {
    return add_i32(mul_i32(x[0], set1_i32(y[0])), mul_i32(x[1], set1_i32(y[1])));
  }

  // s plus four products in each lane: signed bytes of b times four[0..3] <= 127
  static I dot_four(I s, B b, const uint8_t* four) {
    return each_i([&](int r) {
      int32_t t = s.v[r];
      for (int k = 0; k < 4; ++k) t += int8_t(b.v[4 * r + k]) * four[k];
      return t;
    });
  }

  // The tree of every reduction: the halves are combined, 16 -> 8 -> 4 -> 2 -> 1.
  template <class Fn>
  static float tree(F x, Fn fn) {
    for (int n = 8; n > 0; n /= 2)
      for (int i = 0; i < n; ++i) x.v[i] = fn(x.v[i], x.v[i + n]);
    return x.v[0];
  }
  static float sum(F x) {
    return tree(x, [](float a, float b) { return a + b; });
  }
  static float maximum(F x) {
    return tree(x, [](float a, float b) { return a > b ? a : b; });
  }
};

}  // namespace
}  // namespace chaski
