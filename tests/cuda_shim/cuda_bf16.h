// bfloat16 as the .cu files use it: storage and exact conversions.
#pragma once
#include "quant/half.h"

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 h) { return chaski::f32_of_bf16(h.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {chaski::bf16_of_f32(x)}; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
