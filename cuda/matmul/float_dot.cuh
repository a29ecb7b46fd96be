// One warp's share of a matmul with f16 or bf16 weights, on the tensor cores: 32 rows x 32 columns
// times 8 tokens.
//
// Weights are multiplied unchanged. x is f32 and is split into the sum of two numbers of the
// weight's type. So a weight costs two products (m16n8k16); 16-bit activations would cost one. The
// split is
//
//   bf16   x = high + low + e        high = bf16(x), low = bf16(x - high)
//          |e| <= 2^-17 |x|
//   f16    x = s (high + low) + e    high = f16(x / s), low = f16(x / s - high)
//          |e| <= max(2^-23 |x|, 2^-39 most)
//
// where `most` is the largest |x| of the token's 32 columns, and s is the power of two with 2^14 <=
// most / s < 2^15. So no f16 overflows for any x, and what is lost below the smallest f16 is 2^39
// times smaller than `most`. In bf16, x beyond 2^127 (2 - 2^-8) overflows, and low parts below
// 2^-126 lose bits. The error of a sum is less than 2^-17 of the sum of |w x|. For normally
// distributed x that is an NMSE of 6e-12 (bf16) or 1e-15 (f16). The high parts alone would give
// 3e-6 or 4e-8.
//
// Order. Each 32 columns start from zero. They add the low parts of columns 0..3 (of each lane's
// eight) and of 4..7, then the high parts of 0..3 and of 4..7. Small numbers come first because
// tensor cores truncate when they align summands. One fma by s, or one addition, then adds the
// result to the row's sum in f32, so that the truncation never affects a long sum. Every kernel
// takes the same products in the same order, through split() and multiply() below.
//
// Fragments. A tile is the 16 rows of one column, 32 bytes. The mapping from the k of a product to
// the 32 columns is free, as long as weights and x agree. Lane 4 g + t has columns t, 4 + t, .. 28
// + t of the four rows that Lane (fragments.cuh) gives it for block formats:
//
//        load i      8 bytes, rows 4 quad .. + 3 of column 4 i + t; a warp loads 128
//                    neighbouring bytes of each of two strips
//        product p   A rows g, g + 8 = the lane's rows 2p, 2p + 1: one byte permute a word puts
//                    two columns next to each other
//
// A load of 16 bytes would bring eight rows of a column, four of which belong to another lane. That
// would cost a shuffle in each direction to save a load.
//
// Cost for 32 x 32 weights (2 KB) in a warp: 8 loads and 16 permutes; and for each 8 tokens 8
// products, 8 fma or additions, 8 loads of x and about 24 (bf16) or 50 (f16) instructions to split
// x. With the tests for the row's end, one a load, nvcc makes 130 or 160 instructions for one
// token. int_dot.cuh takes about 590 for 4 KB.
#pragma once
#include "cuda/matmul/int_dot.cuh"

namespace chaski {

// The 16-bit types: how two numbers are packed, unpacked and multiplied.
struct HalfProducts {
  static constexpr bool kScaled = true;
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    return pack_f16(low, high);
  }
  static __device__ __forceinline__ float item(uint32_t word, int i) {
    return float_of_f16(word >> 16 * i & 0xffff);
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    mma_f16(d, a, b);
  }
};
struct Bfloat16Products {
  static constexpr bool kScaled = false;
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    return pack_bf16(low, high);
  }
  static __device__ __forceinline__ float item(uint32_t word, int i) {
    return __uint_as_float(i ? word & 0xffff0000 : word << 16);
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    mma_bf16(d, a, b);
  }
};

constexpr int kLaneColumns = 8;  // of 32: columns 4 i + t

// A lane's eight columns of token g in two parts. Each part is words of two columns, [step][word],
// in the order of a product's B operand. `scale` is the token's.
struct SplitColumns {
  uint32_t low[2][2], high[2][2];
  float scale = 1;
};
template <class Products>
__device__ __forceinline__ SplitColumns split(float (&x)[kLaneColumns]) {
  SplitColumns parts;
  if (Products::kScaled) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) most = fmaxf(most, fabsf(x[i]));
#pragma unroll
    for (int n = 1; n < 4; n *= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, n));
    // the lower bound keeps the exponent of `scale` that of a normal number
    const uint32_t exponent = max(__float_as_uint(most) >> 23, 15u);
    parts.scale = __uint_as_float((exponent - 14) << 23);
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) x[i] *= __uint_as_float((268 - exponent) << 23);
  }
#pragma unroll
  for (int k = 0; k < kLaneColumns / 2; ++k) {
    const uint32_t high = Products::pack(x[2 * k], x[2 * k + 1]);
    parts.high[k / 2][k % 2] = high;
    parts.low[k / 2][k % 2] =
        Products::pack(x[2 * k] - Products::item(high, 0), x[2 * k + 1] - Products::item(high, 1));
  }
  return parts;
}

// 32 x 32 weights as A operands: [product][step][word].
struct FloatWords {
  uint32_t a[2][2][4];
};

// FloatWeights<F>: Products   the 16-bit type of its words
//                  Codes      32 columns from `first` on, zeros from `cols` on
//                  load()     reads Codes. kOnce: no other warp loads the same weights. nvcc may
//                             then move the loads down to their use if registers are scarce; other
//                             loads stay in front of the barrier that follows them.
//                  words()    turns Codes into operands
template <class F>
struct FloatWeights;

template <class ItsProducts>
struct WordWeights {
  using Products = ItsProducts;
  struct Codes {
    uint2 column[kLaneColumns];
  };
  template <bool kOnce>
  static __device__ __forceinline__ void load(const std::byte* strip, int first, int cols,
                                              const Lane& l, Codes& c) {
    const int left = cols - first - l.t;
    const std::byte* at = strip + 32 * int64_t(first + l.t) + 8 * l.quad;
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      c.column[i] = {0, 0};
      if (4 * i < left) c.column[i] = kOnce ? load_once8(at + 128 * i) : load8(at + 128 * i);
    }
  }
  static __device__ __forceinline__ void words(const Codes& c, FloatWords& w) {
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
      for (int k = 0; k < kLaneColumns / 2; ++k) {
        const uint2 &x = c.column[2 * k], &y = c.column[2 * k + 1];
#pragma unroll
        for (int row = 0; row < 2; ++row)
          w.a[p][k / 2][row + 2 * (k % 2)] =
              __byte_perm(p ? x.y : x.x, p ? y.y : y.x, row ? 0x7632 : 0x5410);
      }
  }
};
template <>
struct FloatWeights<F16> : WordWeights<HalfProducts> {};
template <>
struct FloatWeights<BF16> : WordWeights<Bfloat16Products> {};

// Every f8 is an f16. No file has such weights; keys and values may be f8.
template <>
struct FloatWeights<F8> {
  using Products = HalfProducts;
  struct Codes {
    uint32_t column[kLaneColumns];
  };
  template <bool kOnce>
  static __device__ __forceinline__ void load(const std::byte* strip, int first, int cols,
                                              const Lane& l, Codes& c) {
    const int left = cols - first - l.t;
    const std::byte* at = strip + 16 * int64_t(first + l.t) + 4 * l.quad;
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) c.column[i] = 4 * i < left ? load4(at + 64 * i) : 0;
  }
  static __device__ __forceinline__ void words(const Codes& c, FloatWords& w) {
#pragma unroll
    for (int row = 0; row < 4; ++row)
#pragma unroll
      for (int k = 0; k < kLaneColumns / 2; ++k)
        w.a[row / 2][k / 2][row % 2 + 2 * (k % 2)] =
            Products::pack(f32_of_f8(uint8_t(byte_of(c.column[2 * k], row))),
                           f32_of_f8(uint8_t(byte_of(c.column[2 * k + 1], row))));
  }
};

// Adds 32 columns of the lane's row i times token 2t + j to acc[j][i]. scale[j] is the token's
// scale.
template <class Products>
__device__ __forceinline__ void multiply(const FloatWords& w, const SplitColumns& x,
                                         const float (&scale)[2], float (&acc)[2][4]) {
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    float d[4] = {};
#pragma unroll
    for (int step = 0; step < 2; ++step) Products::multiply(d, w.a[p][step], x.low[step]);
#pragma unroll
    for (int step = 0; step < 2; ++step) Products::multiply(d, w.a[p][step], x.high[step]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float& sum = acc[k % 2][2 * p + k / 2];
      sum = Products::kScaled ? fmaf(d[k], scale[k % 2], sum) : sum + d[k];
    }
  }
}

}  // namespace chaski
