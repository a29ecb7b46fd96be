// Lanes on AArch64 with dot products (ARMv8.2's sdot: Raspberry Pi 5, Graviton, Apple). Everything
// else is that of NEON. Codes are at most 127, so they are signed bytes as they are stored.
#pragma once
#include "ggml-like-tensor/cpu/lanes_neon.h"

namespace chaski {
namespace {

struct NeonDotLanes : NeonLanes {
  static constexpr const char* kName = "neondot";

  template <DotKind K, int kFrom, int kTo>
  static I dot(const B* w, const Act& a) {
    static_assert(K.is_signed || K.max <= 127);
    I s = set1_i32(-K.offset * a.sum<kFrom, kTo>());
#pragma GCC unroll 2
    for (int from = kFrom; from < kTo; from += 4) {
      const int8x16_t x = vld1q_s8(a.q + 4 * from);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto q = [&](int g) { return vreinterpretq_s8_u8(w[from + g].v[i]); };
        s.v[i] = vdotq_laneq_s32(s.v[i], q(0), x, 0);
        s.v[i] = vdotq_laneq_s32(s.v[i], q(1), x, 1);
        s.v[i] = vdotq_laneq_s32(s.v[i], q(2), x, 2);
        s.v[i] = vdotq_laneq_s32(s.v[i], q(3), x, 3);
      }
    }
    return s;
  }
  template <DotKind K>
  static F scaled_dot(const B* w, const I* s, const Act& a) {
    return to_float(add_i32(mul_i32(s[0], dot<K, 0, 4>(w, a)), mul_i32(s[1], dot<K, 4, 8>(w, a))));
  }
  static I dot_four(I s, B b, const uint8_t* four) {
    int32_t word;
    std::memcpy(&word, four, 4);
    const int8x16_t f = vreinterpretq_s8_s32(vdupq_n_s32(word));
    return each<I>([&](int i) { return vdotq_s32(s.v[i], vreinterpretq_s8_u8(b.v[i]), f); });
  }
};

}  // namespace
}  // namespace chaski
