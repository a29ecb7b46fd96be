// One warp's share of a matmul with f16 or bf16 weights, on the tensor cores: 32 rows x 32 columns
// times 8 tokens.
//
// Weights are multiplied as they are. x is f32 and goes as the sum of two numbers of the weight's
// kind: a weight costs two products (m16n8k16) where 16-bit activations would cost one. The two are
//
//   bf16   x = high + low + e        high = bf16(x), low = bf16(x - high)
//          |e| <= 2^-17 |x|
//   f16    x = s (high + low) + e    high = f16(x / s), low = f16(x / s - high)
//          |e| <= max(2^-23 |x|, 2^-39 most)
//
// with most = the largest |x| of the token's 32 columns and s = the power of two that makes it 2^14
// <= most / s < 2^15: no f16 overflows, whatever x is, and what is lost below the least f16 is lost
// beside something 2^39 times as large. In bf16, x beyond 2^127 (2 - 2^-8) overflows, and low parts
// below 2^-126 lose bits. So a sum is wrong by less than 2^-17 of the sum of |w x|: an NMSE of
// 6e-12 (bf16) or 1e-15 (f16) for normally distributed x. With the high parts alone it would be
// 3e-6 or 4e-8.
//
// Order. 32 columns start from zero: low of columns 0..3, low of 4..7, high of 0..3, high of 4..7
// (of each lane's eight); small numbers first, because the tensor cores cut what they align. Then
// one fma by s, or one addition, onto the row's sum in f32: their cut never meets a long sum. Every
// kernel takes the same products in the same order, with split() and multiply() below.
//
// Fragments. A tile is the 16 rows of one column, 32 bytes. Which of the 32 columns a product's k
// names is free as long as weights and x agree: lane 4 g + t has columns t, 4 + t, .. 28 + t, of
// the four rows that Lane (fragments.cuh) gives it for block formats:
//
//        load i      8 bytes, rows 4 quad .. + 3 of column 4 i + t; a warp's load is 128
//                    neighbouring bytes of each of two strips
//        product p   A rows g, g + 8 = the lane's rows 2p, 2p + 1: one byte permute a word puts two
//                    columns side by side
//
// 16 bytes would be eight rows of a column, four of them another lane's: a shuffle each way for a
// load saved.
//
// Per 32 x 32 weights (2 KB), in a warp: 8 loads and 16 permutes; per 8 tokens 8 products, 8 fma or
// additions, and to make the parts of x 8 loads and about 24 (bf16) or 50 (f16) instructions. With
// the tests for the row's end, which are one a load, nvcc makes 130 or 160 of it for one token,
// where int_dot.cuh takes 440 for 4 KB.
#pragma once
#include "cuda/matmul/int_dot.cuh"

namespace chaski {

// Kinds of 16-bit numbers: how two are packed, unpacked and multiplied.
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

constexpr int kLaneColumns = 8;  // of 32: 4 i + t

// A lane's eight columns of token g, in two parts: words of two columns, [step][word] as a
// product's B operand. scale is the token's.
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
    // that of the scale stays a normal number's
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

// 32 x 32 weights as A operands: [product][step].
struct FloatWords {
  uint32_t a[2][2][4];
};

// FloatWeights<F>: Products   what its words are made of
//                  Codes      what is loaded of 32 columns from `first` (zeros from `cols` on);
//                             words() turns it into operands
//                  kOnce      no other warp wants the same. Such loads are free to move, and nvcc
//                             moves them down to their use where registers are scarce; the others
//                             stay above the barrier that they are written above.
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

// Every f8 is an f16. No file has such weights; keys and values do.
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

// acc[j][i] += 32 columns of the lane's row i times token 2t + j, whose scale is scale[j].
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
