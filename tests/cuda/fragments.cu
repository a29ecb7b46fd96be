#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "tests/cuda/fragments.h"

namespace chaski::test {

namespace {

// PTX ISA, "Matrix Fragments for mma.m16n8k32" (.s8) and "for mma.m16n8k16" (.f16, .bf16). Element
// i of a thread is in register i / per word, the first in the lowest bits.
struct Position {
  int row, column;
};
template <Product kProduct>
struct Ptx {
  static constexpr bool kBytes = kProduct == Product::s8;
  static constexpr int kColumns = columns_of(kProduct), kPerWord = kBytes ? 4 : 2;
  const int group_id, thread_in_group;
  __device__ explicit Ptx(int lane) : group_id(lane >> 2), thread_in_group(lane % 4) {}
  __device__ Position a(int i) const {
    if (kBytes)
      return {(0 <= i && i < 4) || (8 <= i && i < 12) ? group_id : group_id + 8,
              i < 8 ? thread_in_group * 4 + (i & 0x3) : thread_in_group * 4 + (i & 0x3) + 16};
    return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group_id : group_id + 8,
            i < 4 ? thread_in_group * 2 + (i & 0x1) : thread_in_group * 2 + (i & 0x1) + 8};
  }
  __device__ Position b(int i) const {
    if (kBytes)
      return {i < 4 ? thread_in_group * 4 + (i & 0x3) : thread_in_group * 4 + (i & 0x3) + 16,
              group_id};
    return {i < 2 ? thread_in_group * 2 + (i & 0x1) : thread_in_group * 2 + (i & 0x1) + 8,
            group_id};
  }
  __device__ Position d(int i) const {
    return {i < 2 ? group_id : group_id + 8, thread_in_group * 2 + (i & 0x1)};
  }
};

template <Product kProduct>
__device__ uint32_t item(int8_t x) {
  if (kProduct == Product::s8) return uint8_t(x);
  return kProduct == Product::f16 ? pack_f16(float(x), 0) : pack_bf16(float(x), 0);
}

template <Product kProduct>
__global__ void multiply(const int8_t* a, const int8_t* b, int* out) {
  wait_for_previous();
  using P = Ptx<kProduct>;
  constexpr int kBits = 32 / P::kPerWord;
  const P at(int(threadIdx.x));
  uint32_t a_words[4] = {}, b_words[2] = {};
  for (int i = 0; i < 4 * P::kPerWord; ++i)
    a_words[i / P::kPerWord] |= item<kProduct>(a[at.a(i).row * P::kColumns + at.a(i).column])
                                << kBits * (i % P::kPerWord);
  for (int i = 0; i < 2 * P::kPerWord; ++i)
    b_words[i / P::kPerWord] |= item<kProduct>(b[at.b(i).row * 8 + at.b(i).column])
                                << kBits * (i % P::kPerWord);
  std::conditional_t<P::kBytes, int32_t, float> d[4] = {};
  if constexpr (kProduct == Product::s8)
    mma_s8(d, a_words, b_words);
  else if constexpr (kProduct == Product::f16)
    mma_f16(d, a_words, b_words);
  else
    mma_bf16(d, a_words, b_words);
  for (int i = 0; i < 4; ++i) out[at.d(i).row * 8 + at.d(i).column] = int(d[i]);
}

// PTX ISA, "ldmatrix": thread 8 i + r has the address of row r of matrix i.
__global__ void load(bool transposed, const uint16_t* matrices, uint32_t* out) {
  wait_for_previous();
  auto* shared = dynamic_shared<uint16_t>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) shared[i] = matrices[i];
  __syncwarp();
  uint32_t d[4];
  if (transposed)
    load_matrices_turned(d, shared + 8 * lane);
  else
    load_matrices(d, shared + 8 * lane);
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = d[i];
}

}  // namespace

void multiply_by_ptx(Product p, const int8_t* a, const int8_t* b, int* out, cudaStream_t stream) {
  const auto kernel = p == Product::s8    ? multiply<Product::s8>
                      : p == Product::f16 ? multiply<Product::f16>
                                          : multiply<Product::bf16>;
  launch("multiply", {dim3(1), 32, stream}, kernel, a, b, out);
}
void load_by_ptx(bool transposed, const uint16_t* matrices, uint32_t* out, cudaStream_t stream) {
  launch("load", {dim3(1), 32, stream, 512}, load, transposed, matrices, out);
}

}  // namespace chaski::test
