// The matrix instructions of cuda/device/mma.cuh, emulated: a warp meets, and the product is done
// once, in plain code that no sanitizer slows down (it touches nothing but the fragments in
// registers).
#pragma once
#include <cstdint>

namespace shim {

// d += a b, with fragments as cuda/device/mma.cuh lays them out. Floats are added k by k.
void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_u8s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

}  // namespace shim
