// Emulates the matrix instructions of cuda/device/mma.cuh. The lanes of a warp meet, and the
// product is computed once, in plain code that sanitizers do not slow down, because it touches only
// the fragments in registers.
#pragma once
#include <cstdint>

namespace shim {

// d += a b, with fragments laid out as in cuda/device/mma.cuh. Floats are added k
// by k, or as modes.h says.
void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

}  // namespace shim
