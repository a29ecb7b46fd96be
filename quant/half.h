// IEEE half, bfloat16 and e4m3 <-> float, exact, round to nearest even on the way down. Portable
// and branch-light; kernels use the hardware instructions, which give the same bits.
#pragma once
#include <bit>
#include <cstdint>

namespace chaski {

// Always inlined: kernels of several instruction sets use these functions, and the linker must not
// pick one set's copy for another.
[[gnu::always_inline]] constexpr float f32_of_f16(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000u | rest << 13 | (rest > 0x7c00 ? 0x400000u : 0u));
  if (rest >= 0x0400) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  const float subnormal = float(rest) * 0x1p-24f;  // exact: rest < 2^10
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

[[gnu::always_inline]] constexpr uint16_t f16_of_f32(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f), sign = x >> 16 & 0x8000, rest = x & 0x7fffffff;
  if (rest > 0x7f800000) return uint16_t(sign | 0x7e00 | (rest >> 13 & 0x3ff));  // NaN, made quiet
  if (rest >= 0x47800000) return uint16_t(sign | 0x7c00);
  // subnormal: adding 0.5 lines the last kept bit up with bit 0, rounded by the adder
  if (rest < 0x38800000) {
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
  return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
}

[[gnu::always_inline]] constexpr float f32_of_bf16(uint16_t b) {
  return std::bit_cast<float>(uint32_t(b) << 16);
}

[[gnu::always_inline]] constexpr uint16_t bf16_of_f32(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7fffffff) > 0x7f800000) return uint16_t(x >> 16 | 0x40);
  return uint16_t((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

// e4m3 (OCP 8-bit floating point, 2023): bias 7, no infinities, NaN 0x7f and 0xff, largest 448.
// Shifted into the fields of a half, a code is its value / 256, subnormals too. Only NaN differs:
// its exponent is not all ones there. Adding 1 to a code shows whether it is NaN.
[[gnu::always_inline]] constexpr uint16_t f16_of_f8_by_256(uint8_t b) {
  const uint16_t h = uint16_t(int8_t(b) * 128 & 0xbf80);
  return uint16_t(h | ((h + 0x80) & 0x4000));
}
[[gnu::always_inline]] constexpr float f32_of_f8(uint8_t b) {
  return f32_of_f16(f16_of_f8_by_256(b)) * 256;
}

// Finite numbers saturate at +-448. Infinity and NaN become NaN, so that they are noticed.
[[gnu::always_inline]] constexpr uint8_t f8_of_f32(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f), sign = x >> 24 & 0x80, rest = x & 0x7fffffff;
  if (rest >= 0x7f800000) return uint8_t(sign | 0x7f);
  if (rest >= 0x43e00000) return uint8_t(sign | 0x7e);
  if (rest < 0x3c800000) {  // subnormal: 2^14 lines the last kept bit, 2^-9, up with bit 0
    const float shifted = std::bit_cast<float>(rest) + 0x1p14f;
    return uint8_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  const uint32_t rounded = rest + 0x7ffff + (rest >> 20 & 1);
  return uint8_t(sign | ((rounded - 0x3c000000u) >> 20));
}

}  // namespace chaski
