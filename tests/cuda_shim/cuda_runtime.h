// A host replacement for <cuda_runtime.h>, as far as chaski's .cu files use it. The host compiler
// builds them with it, and tests run them without a GPU, also under AddressSanitizer. Kernels run
// block after block. The threads of a block are fibers (fibers.h) that meet at barriers and warp
// operations, with real divergence. A wait that would never end on a device is reported.
//
// It does not simulate time or caches. What else a device leaves open is chosen in modes.h.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "tests/cuda_shim/fibers.h"
#include "tests/cuda_shim/matrices.h"
#include "tests/cuda_shim/runtime.h"
#include "tests/cuda_shim/vectors.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline  // inlining everything takes three times as long to compile
#define __launch_bounds__(...)
#define __grid_constant__
// Static shared memory is a section. fibers.cpp poisons it for each block, and exchanges it when
// another block continues.
#define __shared__ static __attribute__((section("shim_shared")))
#define __align__(n) alignas(n)

inline void __syncthreads() { shim::barrier("__syncthreads"); }
inline void __syncwarp(unsigned mask = shim::kWholeWarp) {
  shim::together(mask, nullptr, "__syncwarp", [](void* const*, unsigned) {});
}
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace shim {

// Returns the value of the lane that source(my lane) names. A lane whose source is outside its
// group of `width` keeps its own value, as on a device.
template <class T, class Source>
T shuffle(unsigned mask, T value, const char* name, Source source) {
  struct Mine {
    T in, out;
    int source;
  } mine{value, value, source(lane())};
  together(mask, &mine, name, [](void* const* lanes, unsigned) {
    for (int l = 0; l < 32; ++l)
      if (lanes[l]) {
        auto& mine = *static_cast<Mine*>(lanes[l]);
        auto* from = static_cast<const Mine*>(lanes[mine.source]);
        if (!from) stop("shuffle: lane %d reads lane %d, which is not in the mask", l, mine.source);
        mine.out = from->in;
      }
  });
  return mine.out;
}

// Every lane gets fold() over the values of the mask's lanes, the lowest lane first.
template <class T, class R, class Fold>
R vote(unsigned mask, T value, R start, const char* name, Fold) {
  struct Mine {
    T in;
    R out;
  } mine{value, start};
  together(mask, &mine, name, [](void* const* lanes, unsigned) {
    R all{};
    bool first = true;
    for (int l = 0; l < 32; ++l)
      if (lanes[l])
        all = Fold{}(first ? static_cast<Mine*>(lanes[l])->out : all,
                     static_cast<Mine*>(lanes[l])->in, l),
        first = false;
    for (int l = 0; l < 32; ++l)
      if (lanes[l]) static_cast<Mine*>(lanes[l])->out = all;
  });
  return mine.out;
}

}  // namespace shim

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
  return shim::shuffle(mask, v, "__shfl_sync",
                       [=](int lane) { return lane / width * width + source % width; });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
  return shim::shuffle(mask, v, "__shfl_xor_sync", [=](int lane) {
    return (lane ^ bits) / width <= lane / width ? lane ^ bits : lane;
  });
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, int by, int width = 32) {
  return shim::shuffle(mask, v, "__shfl_down_sync",
                       [=](int lane) { return lane % width + by < width ? lane + by : lane; });
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, int by, int width = 32) {
  return shim::shuffle(mask, v, "__shfl_up_sync",
                       [=](int lane) { return lane % width - by >= 0 ? lane - by : lane; });
}
inline unsigned __ballot_sync(unsigned mask, bool v) {
  return shim::vote(mask, v, 0u, "__ballot_sync",
                    [](unsigned all, bool b, int lane) { return all | unsigned(b) << lane; });
}
inline bool __any_sync(unsigned mask, bool v) { return __ballot_sync(mask, v) != 0; }
inline bool __all_sync(unsigned mask, bool v) { return __ballot_sync(mask, v) == mask; }
inline int __reduce_add_sync(unsigned mask, int v) {
  return shim::vote(mask, v, 0, "__reduce_add_sync", [](int all, int x, int) { return all + x; });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v) {
  return shim::vote(mask, v, 0u, "__reduce_max_sync",
                    [](unsigned all, unsigned x, int) { return x > all ? x : all; });
}

// Blocks and fibers take turns, so a plain read and write is atomic.
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  T old = *p;
  *p = old + v;
  return old;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  T old = *p;
  *p = old > v ? old : v;
  return old;
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  T old = *p;
  *p = v;
  return old;
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  T old = *p;
  if (old == expected) *p = v;
  return old;
}

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}

// Sums of four products of bytes: signed x signed; below, unsigned x unsigned.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += int8_t(uint32_t(a) >> 8 * i) * int8_t(uint32_t(b) >> 8 * i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += uint8_t(a >> 8 * i) * uint8_t(b >> 8 * i);
  return c;
}
// only three bits of each selector nibble are used
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = uint64_t(y) << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= unsigned(uint8_t(both >> 8 * (selector >> 4 * i & 7))) << 8 * i;
  return r;
}
inline unsigned shim_each_byte(unsigned a, unsigned b, unsigned (*fn)(unsigned, unsigned)) {
  unsigned r = 0;
  for (int i = 0; i < 32; i += 8) r |= (fn(a >> i & 255, b >> i & 255) & 255) << i;
  return r;
}
inline unsigned __vadd4(unsigned a, unsigned b) {
  return shim_each_byte(a, b, [](unsigned x, unsigned y) { return x + y; });
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  return shim_each_byte(a, b, [](unsigned x, unsigned y) { return x - y; });
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
// The shift is taken modulo 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << shift % 32 >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }

template <class To, class From>
To shim_bits(From x) {
  To y;
  static_assert(sizeof x == sizeof y);
  std::memcpy(&y, &x, sizeof y);
  return y;
}
inline float __int_as_float(int x) { return shim_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return shim_bits<float>(x); }
inline int __float_as_int(float x) { return shim_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return shim_bits<unsigned>(x); }
inline int __float2int_rn(float x) {
  return std::isnan(x)         ? 0
         : x >= 2147483648.0f  ? INT32_MAX
         : x <= -2147483648.0f ? INT32_MIN
                               : int(std::nearbyintf(x));
}
inline float __int2float_rn(int x) { return float(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float rsqrtf(float a) { return 1 / std::sqrt(a); }
template <class T>
constexpr T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}
