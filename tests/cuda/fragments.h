// Kernels that use the matrix instructions with positions written out from the PTX manual.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace chaski::test {

enum class Product { s8, f16, bf16 };
constexpr int columns_of(Product p) { return p == Product::s8 ? 32 : 16; }

// out (16 x 8) = a (16 x columns) b (columns x 8), all in device memory, row by row, as whole
// numbers of at most 7 bits.
void multiply_by_ptx(Product p, const int8_t* a, const int8_t* b, int* out, cudaStream_t stream);
// matrices: four of 8 x 8 items of 16 bits. out: what lane l finds in register i, as [l][i].
void load_by_ptx(bool transposed, const uint16_t* matrices, uint32_t* out, cudaStream_t stream);

}  // namespace chaski::test
