// Half precision as the .cu files use it: storage, exact conversions, and products and differences
// of pairs. They are computed in f32 and rounded again. That equals rounding once, because the 24
// bits of f32 are more than twice 11 bits plus 2.
#pragma once
#include "quant/half.h"

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
using half = __half;
using half2 = __half2;

inline float __half2float(__half h) { return chaski::f32_of_f16(h.bits); }
inline __half __float2half_rn(float x) { return {chaski::f16_of_f32(x)}; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half2 __hmul2_rn(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) * __half2float(b.x)),
          __float2half_rn(__half2float(a.y) * __half2float(b.y))};
}
inline __half2 __hsub2_rn(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) - __half2float(b.x)),
          __float2half_rn(__half2float(a.y) - __half2float(b.y))};
}
