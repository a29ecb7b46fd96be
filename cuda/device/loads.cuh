// Small loads, and the bytes, half words and words in them. All are forced inline: arguments stay
// in registers.
#pragma once
#include <cuda_fp16.h>

#include "cuda/device/launch.cuh"

namespace chaski {

__device__ __forceinline__ uint4 load16(const void* p) { return *static_cast<const uint4*>(p); }
__device__ __forceinline__ uint2 load8(const void* p) { return *static_cast<const uint2*>(p); }
__device__ __forceinline__ uint32_t load4(const void* p) {
  return *static_cast<const uint32_t*>(p);
}
__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ __forceinline__ uint32_t half_word_of(const uint2& v, int i) {
  return (i < 2 ? v.x : v.y) >> 16 * (i % 2) & 0xffff;
}
__device__ __forceinline__ uint32_t half_word_of(const uint4& v, int i) {
  return word_of(v, i / 2) >> 16 * (i % 2) & 0xffff;
}
__device__ __forceinline__ uint32_t byte_of(uint32_t v, int i) { return v >> 8 * i & 255; }

__device__ __forceinline__ float float_of_f16(uint32_t bits) {
  return __half2float(__ushort_as_half((unsigned short)bits));
}
__device__ __forceinline__ float float_of_bf16(uint32_t bits) {
  return __uint_as_float(bits << 16);
}
// Two f16 of one word combined with two of another; each result is rounded once.
__device__ __forceinline__ uint32_t bits_of(__half2 x) {
  return __half_as_ushort(x.x) | uint32_t(__half_as_ushort(x.y)) << 16;
}
__device__ __forceinline__ __half2 half2_of(uint32_t bits) {
  return __half2{__ushort_as_half((unsigned short)(bits & 0xffff)),
                 __ushort_as_half((unsigned short)(bits >> 16))};
}
__device__ __forceinline__ uint32_t mul_halves(uint32_t x, uint32_t y) {
  return bits_of(__hmul2_rn(half2_of(x), half2_of(y)));
}
__device__ __forceinline__ uint32_t sub_halves(uint32_t x, uint32_t y) {
  return bits_of(__hsub2_rn(half2_of(x), half2_of(y)));
}
__device__ __forceinline__ float half_at(const uint2& four, int i) {
  return float_of_f16(half_word_of(four, i));
}

}  // namespace chaski
