// What attention needs to know about each format of keys and values. 16 positions of a page
// (kv_layout.h) are copied to shared memory unchanged; this file turns them into A fragments of mma
// m16n8k16 (mma.cuh).
//
//   Keys<F>     rows are positions, columns are channels. Reads a K tile, kSpan channels
//               (kSpanBytes) at a time.
//   Values<F>   rows are channels, columns are positions. Reads the V rows of a page, 16 kTiles
//               channels at a time. q8 has one more row, the scales.
//
// F is a format, or Latent<F> if the values are the first channels of the keys: then Values read
// the K tile, of which a fragment's rows are neighbouring bytes.
//
// The others are transposed relative to memory, where the positions of one channel (keys) or the
// channels of one position (values) are neighbours. ldmatrix transposes them in units of 16 bits.
// Single bytes are therefore moved in pairs: rows 0, 1 .. 15 of a fragment are positions (or
// channels) 0, 2 .. 14, 1, 3 .. 15. A K tile of q8 has four channels of a position in a word, so
// its columns have an order of their own.
#pragma once
#include <type_traits>

#include "cuda/device/loads.cuh"
#include "cuda/device/mma.cuh"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

// parts of a query or weight; the second part is the rounding error of the first
constexpr int kParts = 2;

// How factors are rounded. An f16 is exact for keys and values of a page (q8: rounded to 11 bits).
// Two f16 hold 22 bits of a query or weight.
struct Halves {
  static constexpr int kPageParts = 1;
  static constexpr uint32_t kOnes = 0x3c003c00, kExponents = 0x7c007c00, kLowest = 0x04000400;
  static __device__ __forceinline__ void split(float x, uint16_t (&part)[kParts]) {
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      part[i] = __half_as_ushort(__float2half_rn(x)), x -= value(part[i]);
  }
  static __device__ __forceinline__ float value(uint16_t part) { return float_of_f16(part); }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
    mma_f16(d, a, b);
  }
};
// For f32 pages: two bfloat16, 16 bits, for both factors.
struct Bfloats {
  static constexpr int kPageParts = 2;
  static constexpr uint32_t kOnes = 0x3f803f80, kExponents = 0x7f807f80, kLowest = 0x00800080;
  static __device__ __forceinline__ void split(float x, uint16_t (&part)[kParts]) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) part[i] = bf16_of_f32(x), x -= value(part[i]);
  }
  static __device__ __forceinline__ float value(uint16_t part) { return float_of_bf16(part); }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
    mma_bf16(d, a, b);
  }
};
// Pages whose values are inside the keys (KvLayout::v_inside_k).
template <class F>
struct Latent : F {
  using Plain = F;
};
template <class F>
struct PlainFormat {
  using type = F;
};
template <class F>
struct PlainFormat<Latent<F>> {
  using type = F;
};
// The format of the keys.
template <class F>
using Plain = typename PlainFormat<F>::type;
template <class F>
constexpr bool kInKeys = !std::is_same_v<F, Plain<F>>;

template <class F>
using Parts = std::conditional_t<F::kFormat == Format::f32, Bfloats, Halves>;
template <class F>
using Fragment = uint32_t[Parts<F>::kPageParts][4];

// Bytes 0 and 2 of x, which are f8, as f16 divided by 256 (half.h).
__device__ __forceinline__ uint32_t halves_of_f8(uint32_t x) {
  const uint32_t h = (x & 0x00800080) << 8 | (x & 0x007f007f) << 7;
  return h | ((h + 0x00800080) & 0x40004000);
}
// Bytes 0 and 2 of x, which are int8, as f16. The f16 1024 + 128 + x has x in its low bits.
__device__ __forceinline__ uint32_t halves_of_i8(uint32_t x) {
  return sub_halves(((x ^ 0x00800080) & 0x00ff00ff) | 0x64006400, 0x64806480);
}
__device__ __forceinline__ uint32_t twice(uint32_t half) { return half | half << 16; }

// The position or channel of a fragment's row, if ldmatrix moves pairs of bytes.
__device__ __forceinline__ int pairs_first(int row) { return 2 * (row % 8) + row / 8; }

// For f16 a channel is two pieces of 16 bytes. The pieces are swapped in half of the channels, so
// that those of 8 channels are in different banks.
template <class F>
struct PlainKeys {
  static constexpr int kSpan = 16, kSteps = 1,
                       kSpanBytes = 16 * kSpan * int(sizeof(typename F::Block));
  static constexpr float kScale = 1;
  static __device__ __forceinline__ int place(int piece) {
    return F::kFormat == Format::f16 ? piece ^ (piece >> 3 & 1) : piece;
  }
  static __device__ __forceinline__ int column_of(int channel) { return channel; }
  static __device__ __forceinline__ int position_of(int row) { return row; }
  static __device__ __forceinline__ void load(const std::byte* span, Fragment<F> (&k)[kSteps]) {
    const int lane = threadIdx.x % 32;
    if constexpr (F::kFormat == Format::f16) {
      const int channel = lane / 16 * 8 + lane % 8;
      load_matrices_turned(k[0][0], span + 16 * place(2 * channel + lane / 8 % 2));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto* at = reinterpret_cast<const float*>(span) + (i / 2 * 8 + lane % 4 * 2) * kPage +
                         i % 2 * 8 + lane / 4;
        split_pair(at[0], at[kPage], k[0], i);
      }
    }
  }
  static __device__ __forceinline__ void split_pair(float x, float y, Fragment<F>& to, int i) {
    uint16_t low[2], high[2];
    Bfloats::split(x, low), Bfloats::split(y, high);
#pragma unroll
    for (int part = 0; part < 2; ++part) to[part][i] = low[part] | uint32_t(high[part]) << 16;
  }
};

template <class F>
struct Keys;
template <>
struct Keys<F16> : PlainKeys<F16> {};
template <>
struct Keys<F32> : PlainKeys<F32> {};

template <>
struct Keys<F8> {
  static constexpr int kSpan = 32, kSteps = 2, kSpanBytes = 16 * kSpan;
  static constexpr float kScale = 256;
  static __device__ __forceinline__ int place(int piece) { return piece; }
  static __device__ __forceinline__ int column_of(int channel) { return channel; }
  static __device__ __forceinline__ int position_of(int row) { return pairs_first(row); }
  static __device__ __forceinline__ void load(const std::byte* span, Fragment<F8> (&k)[kSteps]) {
    uint32_t x[4];
    load_matrices_turned(x, span + 16 * (threadIdx.x % 32));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      k[i / 2][0][i % 2 * 2] = halves_of_f8(x[i]),
                          k[i / 2][0][i % 2 * 2 + 1] = halves_of_f8(x[i] >> 8);
  }
};

template <>
struct Keys<Q8> {
  static constexpr int kSpan = 32, kSteps = 2, kSpanBytes = sizeof(Q8::Tile);
  static constexpr float kScale = 1;
  static __device__ __forceinline__ int place(int piece) { return piece; }
  // Channels 0, 2 of a word are columns 2t, 2t + 1; channels 1, 3 are columns 8 + 2t, 9 + 2t.
  static __device__ __forceinline__ int column_of(int channel) {
    return channel % 2 * 8 + channel / 4 * 2 + channel % 4 / 2;
  }
  static __device__ __forceinline__ int position_of(int row) { return row; }
  static __device__ __forceinline__ void load(const std::byte* span, Fragment<Q8> (&k)[kSteps]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const auto& tile = *reinterpret_cast<const Q8::Tile*>(span);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = load4(tile.q + 64 * (4 * step + t) + 4 * (g + 8 * i)),
                       d = twice(tile.d[g + 8 * i]);
        k[step][0][i] = mul_halves(halves_of_i8(word), d),
        k[step][0][i + 2] = mul_halves(halves_of_i8(word >> 8), d);
      }
  }
};

template <class F>
struct Keys<Latent<F>> : Keys<F> {};

// rows: the page's rows in shared memory, `stride` bytes apart. channel_of: the channel of a row of
// fragment `tile`, from the first of these kTiles fragments on.
template <class F>
struct PlainValues {
  static constexpr int kTiles = 1, kRows = kPage;
  static constexpr float kScale = 1;
  static __device__ __forceinline__ int channel_of(int, int row) { return row; }
  static __device__ __forceinline__ void load(const std::byte* rows, int stride, int, int unit,
                                              Fragment<F> (&v)[kTiles]) {
    const int lane = threadIdx.x % 32;
    if constexpr (F::kFormat == Format::f16) {
      load_matrices_turned(
          v[0][0], rows + (lane / 16 * 8 + lane % 8) * stride + 32 * unit + lane / 8 % 2 * 16);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::byte* at =
            rows + (i / 2 * 8 + lane % 4 * 2) * stride + (16 * unit + i % 2 * 8 + lane / 4) * 4;
        Keys<F>::split_pair(*reinterpret_cast<const float*>(at),
                            *reinterpret_cast<const float*>(at + stride), v[0], i);
      }
    }
  }
};

template <class F>
struct Values;
template <>
struct Values<F16> : PlainValues<F16> {};
template <>
struct Values<F32> : PlainValues<F32> {};

// Loads two tiles of bytes of the rows, transposed in pairs.
__device__ __forceinline__ void load_byte_pairs(const std::byte* rows, int stride, int unit,
                                                uint32_t (&x)[4]) {
  const int lane = threadIdx.x % 32;
  load_matrices_turned(x, rows + lane % 16 * stride + 32 * unit + lane / 16 * 16);
}

template <>
struct Values<F8> {
  static constexpr int kTiles = 2, kRows = kPage;
  static constexpr float kScale = 256;
  static __device__ __forceinline__ int channel_of(int tile, int row) {
    return 16 * tile + pairs_first(row);
  }
  static __device__ __forceinline__ void load(const std::byte* rows, int stride, int, int unit,
                                              Fragment<F8> (&v)[kTiles]) {
    uint32_t x[4];
    load_byte_pairs(rows, stride, unit, x);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[i / 2][0][i % 2 * 2] = halves_of_f8(x[i]),
                          v[i / 2][0][i % 2 * 2 + 1] = halves_of_f8(x[i] >> 8);
  }
};

template <>
struct Values<Q8> {
  static constexpr int kTiles = 2, kRows = kPage + 1;
  static constexpr float kScale = 1;
  static __device__ __forceinline__ int channel_of(int tile, int row) {
    return 16 * tile + pairs_first(row);
  }
  static __device__ __forceinline__ void load(const std::byte* rows, int stride, int v_cols,
                                              int unit, Fragment<Q8> (&v)[kTiles]) {
    uint32_t x[4];
    load_byte_pairs(rows, stride, unit, x);
    const auto* scales = reinterpret_cast<const uint16_t*>(rows + kPage * stride) + unit;
    const int t = threadIdx.x % 4, blocks = v_cols / 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int p = i % 2 * 8 + 2 * t;
      const uint32_t d = scales[p * blocks] | uint32_t(scales[(p + 1) * blocks]) << 16;
      v[i / 2][0][i % 2 * 2] = mul_halves(halves_of_i8(x[i]), d),
                          v[i / 2][0][i % 2 * 2 + 1] = mul_halves(halves_of_i8(x[i] >> 8), d);
    }
  }
};

// Values inside keys. `rows` is the K tile, one row of `stride` bytes.
template <class F>
struct LatentValues {
  static constexpr int kTiles = 1, kRows = 1;
  static constexpr float kScale = 1;
  static __device__ __forceinline__ int channel_of(int, int row) { return row; }
};
template <>
struct Values<Latent<F16>> : LatentValues<F16> {
  static __device__ __forceinline__ void load(const std::byte* rows, int, int, int unit,
                                              Fragment<F16> (&v)[kTiles]) {
    const int lane = threadIdx.x % 32, channel = 16 * unit + lane / 8 % 2 * 8 + lane % 8;
    load_matrices(v[0][0], rows + 16 * Keys<F16>::place(2 * channel + lane / 16));
  }
};
template <>
struct Values<Latent<F32>> : LatentValues<F32> {
  static __device__ __forceinline__ void load(const std::byte* rows, int, int, int unit,
                                              Fragment<F32> (&v)[kTiles]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* at = reinterpret_cast<const float*>(rows) +
                       (16 * unit + i % 2 * 8 + lane / 4) * kPage + i / 2 * 8 + lane % 4 * 2;
      Keys<F32>::split_pair(at[0], at[1], v[0], i);
    }
  }
};
template <>
struct Values<Latent<F8>> : LatentValues<F8> {
  static constexpr float kScale = 256;
  static __device__ __forceinline__ void load(const std::byte* rows, int, int, int unit,
                                              Fragment<F8> (&v)[kTiles]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = *reinterpret_cast<const uint16_t*>(
          rows + (16 * unit + i % 2 * 8 + lane / 4) * kPage + i / 2 * 8 + lane % 4 * 2);
      v[0][0][i] = halves_of_f8(two | two << 8);
    }
  }
};
// A word has four channels of a position; 32 channels have 8 words. Lane 4 g + t takes word g of
// positions 2 t, 2 t + 1 and 8 more. A word's channels are rows g and g + 8 of two fragments.
template <>
struct Values<Latent<Q8>> {
  static constexpr int kTiles = 2, kRows = 1;
  static constexpr float kScale = 1;
  static __device__ __forceinline__ int channel_of(int tile, int row) {
    return 4 * (row % 8) + 2 * tile + row / 8;
  }
  static __device__ __forceinline__ void load(const std::byte* rows, int, int, int unit,
                                              Fragment<Q8> (&v)[kTiles]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const auto& tile = reinterpret_cast<const Q8::Tile*>(rows)[unit];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = 8 * half + 2 * t;
      const uint2 codes = load8(tile.q + 64 * g + 4 * position);
      const uint32_t d = load4(tile.d + position);
#pragma unroll
      for (int c = 0; c < 4; ++c)
        v[c / 2][0][c % 2 + 2 * half] =
            mul_halves(halves_of_i8(__byte_perm(codes.x, codes.y, c | (4 + c) << 8)), d);
    }
  }
};

}  // namespace chaski
