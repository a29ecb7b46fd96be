// Sums, exp, tanh and quantization of activations on the device, with the bits of the CPU
// (cpu/math.h, cpu/lanes_scalar.h, ops/quantize_acts.h): the same polynomials with the same
// explicit fma, and the same tree of 16 partial sums. nvcc contracts nothing (-fmad=false), and its
// division and square root follow IEEE 754.
#pragma once
#include "cuda/device/launch.cuh"
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/quantize_acts.h"
#include "ggml-like-tensor/ops/unary.h"

namespace chaski {

constexpr unsigned kAllLanes = 0xffffffffu;

// e^x by the Cody-Waite reduction x = n ln 2 + r and the Taylor polynomial of degree 7. Below -87.3
// the result is exactly 0; above 88.3 x is clamped. The comparisons are those of the CPU's min and
// max, so a NaN gives e^-87.3 there and here.
__device__ __forceinline__ float exp_fixed(float x) {
  float clamped = x > -87.3f ? x : -87.3f;
  clamped = clamped < 88.3f ? clamped : 88.3f;
  const int n = __float2int_rn(clamped * 1.44269504f);
  float r = fmaf(float(n), -0.693359375f, clamped);
  r = fmaf(float(n), 2.12194440e-4f, r);
  float y = 1.0f / 5040;
  y = fmaf(y, r, 1.0f / 720);
  y = fmaf(y, r, 1.0f / 120);
  y = fmaf(y, r, 1.0f / 24);
  y = fmaf(y, r, 1.0f / 6);
  y = fmaf(y, r, 0.5f);
  y = fmaf(y, r, 1.0f);
  y = fmaf(y, r, 1.0f);
  return x < -87.3f ? 0.0f : y * __int_as_float((n + 127) << 23);
}
__device__ __forceinline__ float tanh_fixed(float x) {
  return 1.0f - 2.0f / (exp_fixed(x + x) + 1.0f);
}

__device__ __forceinline__ float erf_fixed(float x) {
  const float t = 1.0f / fmaf(fabsf(x), 0.3275911f, 1.0f);
  float y = fmaf(1.061405429f, t, -1.453152027f);
  y = fmaf(y, t, 1.421413741f);
  y = fmaf(y, t, -0.284496736f);
  y = fmaf(y, t, 0.254829592f);
  const float above = 1.0f - y * t * exp_fixed(0.0f - x * x);
  return x < 0 ? 0.0f - above : above;
}

// ln(1 + x) for 0 <= x <= 1.
__device__ __forceinline__ float log1p_fixed(float x) {
  const float s = x / (2.0f + x), square = s * s;
  float y = 1.0f / 15;
  y = fmaf(y, square, 1.0f / 13);
  y = fmaf(y, square, 1.0f / 11);
  y = fmaf(y, square, 1.0f / 9);
  y = fmaf(y, square, 1.0f / 7);
  y = fmaf(y, square, 0.2f);
  y = fmaf(y, square, 1.0f / 3);
  y = fmaf(y, square, 1.0f);
  return (s + s) * y;
}

__device__ __forceinline__ float activate_fixed(Activation kind, float x) {
  if (kind == Activation::silu) return x / (1.0f + exp_fixed(0.0f - x));
  if (kind == Activation::gelu_erf) return 0.5f * x * (1.0f + erf_fixed(x * 0.70710678f));
  if (kind == Activation::relu) return x < 0 ? 0.0f : x;
  if (kind == Activation::relu2) return x < 0 ? 0.0f : x * x;
  if (kind == Activation::sigmoid) return 1.0f / (1.0f + exp_fixed(0.0f - x));
  if (kind == Activation::softplus)
    return (x < 0 ? 0.0f : x) + log1p_fixed(exp_fixed(0.0f - fabsf(x)));
  if (kind == Activation::tanh) return tanh_fixed(x);
  const float inner = 0.7978845608f * fmaf((x * x) * x, 0.044715f, x);
  return (0.5f * x) * (1.0f + tanh_fixed(inner));
}

// gpt-oss's gate (ops/binary.h).
__device__ __forceinline__ float clamped_swiglu(float gate, float up) {
  gate = Binary::kLimit < gate ? Binary::kLimit : gate;
  up = up < -Binary::kLimit ? -Binary::kLimit : up > Binary::kLimit ? Binary::kLimit : up;
  return gate / (1.0f + exp_fixed(gate * -Binary::kSlope)) * (up + 1.0f);
}

// The tree of every reduction. Lane l of each half warp holds partial sum l of 16; the sums are
// added by halves. All lanes get the result.
__device__ __forceinline__ float tree_sum(float x) {
#pragma unroll
  for (int n = 8; n > 0; n /= 2) x = x + __shfl_xor_sync(kAllLanes, x, n, 16);
  return x;
}
__device__ __forceinline__ float tree_max(float x) {
#pragma unroll
  for (int n = 8; n > 0; n /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, n, 16);
    x = x > other ? x : other;
  }
  return x;
}

// Quantizes a block of 32 activations with one warp, as QuantizeActs::block does. Lane i holds
// x[i]; all 32 lanes must take part.
__device__ __forceinline__ void quantize_block(float x, Act* to) {
  const int lane = threadIdx.x % 32;
  float most = fabsf(x);
  bool finite = x * 0.0f == 0.0f;
#pragma unroll
  for (int n = 16; n > 0; n /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, most, n);
    most = most > other ? most : other;
  }
  finite = __all_sync(kAllLanes, finite);
  const float inverse = finite && most > QuantizeActs::kSmallest ? 127.0f / most : 0.0f;
  const int q = finite ? __float2int_rn(x * inverse) : 0;
  int half = q;
#pragma unroll
  for (int n = 8; n > 0; n /= 2) half += __shfl_xor_sync(kAllLanes, half, n, 16);
  const int other_half = __shfl_xor_sync(kAllLanes, half, 16);
  to->q[lane] = int8_t(q);
  if (lane == 0) {
    const float d = finite ? most / 127.0f : __int_as_float(0x7fc00000);
    to->d = d;
    to->set_sums(half, other_half);
  }
}

}  // namespace chaski
