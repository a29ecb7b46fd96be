// The matrix instructions, each for one warp, and the host shim's emulation of them. Fragments are
// laid out as in PTX. With lane = 4 g + t, g = lane / 4 is a row or column, and t = lane % 4 is a
// group of columns:
//
//   m16n8k32 int8      a[0] row g, columns 4t..4t+3     a[1] row g + 8, the same
//                      a[2] row g, columns 16+4t..      a[3] row g + 8, the same
//                      b[0] column g, rows 4t..4t+3     b[1] rows 16+4t..
//   m16n8k16 f16/bf16  a[0] row g, columns 2t, 2t+1     a[1] row g + 8, the same
//                      a[2] row g, columns 8+2t..       a[3] row g + 8, the same
//                      b[0] column g, rows 2t, 2t+1     b[1] rows 8+2t..
//   d (both)           d[0], d[1] row g, columns 2t, 2t+1
//                      d[2], d[3] row g + 8, the same
//
// Integer products are exact. The float sums of tensor cores have their own order and rounding. The
// shim does not imitate these: it adds k by k in float. So tests of float sums compare with a
// bound, not bit for bit.
#pragma once
#include "cuda/device/launch.cuh"
#include "quant/half.h"

namespace chaski {

#if defined(__CUDACC__)

// d += a b
__device__ __forceinline__ void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Packs two floats into a word of a fragment, rounded to nearest even; `low` is in the lower half.
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
// Loads four 8 x 8 matrices of 16-bit items. Lane 8 i + r passes the address of row r of matrix i.
// Each lane gets pair t of row g of each matrix.
__device__ __forceinline__ void load_matrices(uint32_t (&d)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(unsigned(__cvta_generic_to_shared(row))));
}
// The same with each matrix transposed: a lane gets items 2t and 2t + 1 of column g.
__device__ __forceinline__ void load_matrices_turned(uint32_t (&d)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(unsigned(__cvta_generic_to_shared(row))));
}

#elif defined(CHASKI_CUDA_SHIM)  // otherwise: a host file that only launches kernels

using shim::mma_bf16, shim::mma_f16, shim::mma_s8;
inline uint32_t pack_f16(float low, float high) {
  return f16_of_f32(low) | uint32_t(f16_of_f32(high)) << 16;
}
inline uint32_t pack_bf16(float low, float high) {
  return bf16_of_f32(low) | uint32_t(bf16_of_f32(high)) << 16;
}
struct MatrixRow {
  uint32_t* d;
  const void* row;
};
inline void load_matrices(uint32_t (&d)[4], const void* row) {
  MatrixRow mine{d, row};
  shim::together(shim::kWholeWarp, &mine, "ldmatrix", [](void* const* lanes, unsigned) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const auto* from = static_cast<const uint32_t*>(
            static_cast<const MatrixRow*>(lanes[8 * i + lane / 4])->row);
        static_cast<const MatrixRow*>(lanes[lane])->d[i] = from[lane % 4];
      }
  });
}
inline void load_matrices_turned(uint32_t (&d)[4], const void* row) {
  MatrixRow mine{d, row};
  shim::together(shim::kWholeWarp, &mine, "ldmatrix.trans", [](void* const* lanes, unsigned) {
    auto item = [&](int matrix, int r, int c) {
      return uint32_t(static_cast<const uint16_t*>(
          static_cast<const MatrixRow*>(lanes[8 * matrix + r])->row)[c]);
    };
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i)
        static_cast<const MatrixRow*>(lanes[lane])->d[i] =
            item(i, lane % 4 * 2, lane / 4) | item(i, lane % 4 * 2 + 1, lane / 4) << 16;
  });
}

#endif

}  // namespace chaski
