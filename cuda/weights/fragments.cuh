// Weight tiles as operands of the integer tensor-core product m16n8k32: what each block format's
// Weights<F> has to provide, and the unpacking steps that several formats share. The formats are in
// the other files of this folder; weights.cuh includes all of them.
//
// A warp works on a pair of strips (32 rows), 32 columns at a time. Lane 4 g + t holds rows
// 4g..4g+3 of the 32. Of each row it holds columns 4t..4t+3 in word [i][0] and columns
// 16+4t..16+4t+3 in word [i][1]. The tile layout was chosen for this. In a 4-bit tile these codes
// are 16 neighbouring bytes, so one 16-byte load in every lane fetches the whole 32 x 32 block from
// both strips, in whole sectors:
//
//        lane's bytes   64 t + 16 (g % 4) .. + 15   of the tile of strip g / 4
//        word i         row 4 (g % 4) + i
//        product 0      A rows g, g + 8 = words 0, 1        product 1      words 2, 3
//
// The mapping from rows of A to rows of the weight is free, because the result is read with the
// same mapping. The codes of all formats fit into a signed byte: unsigned codes are at most 127.
//
// Weights<F>: kMixed     true if the columns are in the order
//                        4t, 16+4t, 4t+1, 17+4t | 4t+2, 18+4t, 4t+3, 19+4t: the order in which a
//                        codebook lookup takes the nibbles of a word.
//             Codes      what load() reads; words() turns it into bytes. The two steps are separate
//                        so that many loads are in flight before the first use.
//             Scales     what load_scales() reads; panel() computes d, m, s and mins of the four
//                        rows, bit for bit as the format's row_panel does.
// Float formats have no Weights<F>; see float_dot.cuh and fma_dot.cuh.
#pragma once
#include "cuda/device/loads.cuh"
#include "quant/formats.h"

namespace chaski {

struct Lane {
  int g, t, quad;  // quad: which four rows of the lane's strip
  __device__ __forceinline__ Lane()
      : g(int(threadIdx.x) % 32 / 4), t(int(threadIdx.x) % 4), quad(g % 4) {}
};

// The scales of a lane's four rows for one block of 32 columns. quant/panel.h defines their
// meaning.
struct RowScales {
  float d[4], m[4];
  int s[2][4], mins[2][4];
};

struct Words {
  uint32_t w[4][2] = {};  // [row][half]
};

template <class F>
struct Weights;

__device__ __forceinline__ void nibbles(uint32_t x, uint32_t (&w)[2]) {
  w[0] = x & 0x0f0f0f0f, w[1] = x >> 4 & 0x0f0f0f0f;
}

// Looks eight nibbles up in a table of 16 bytes below 128. The result is in mixed order. If a
// nibble belongs to the other half of the table, permute_bytes repeats the top bit of a byte, which
// is zero. So the results of the two halves are combined by or.
__device__ __forceinline__ void look_up(uint32_t x, const uint32_t (&table)[4], uint32_t (&w)[2]) {
  const uint32_t other = x ^ 0x88888888;
  w[0] = permute_bytes(table[0], table[1], x) | permute_bytes(table[2], table[3], other);
  w[1] =
      permute_bytes(table[0], table[1], x >> 16) | permute_bytes(table[2], table[3], other >> 16);
}
// Looks four nibbles up in a table of 16 signed bytes: in both halves, then selects by a mask of
// the nibbles that are 8 or more.
__device__ __forceinline__ uint32_t look_up_signed(uint32_t x, const uint32_t (&table)[4]) {
  const uint32_t low = x & 0x7777,
                 upper = (permute_bytes(0x80808080, 0, x & 0x8888) & 0x01010101) * 255;
  return (permute_bytes(table[0], table[1], low) & ~upper) |
         (permute_bytes(table[2], table[3], low) & upper);
}

constexpr uint32_t four_bytes(const auto* table, int i) {
  return uint8_t(table[i]) | uint32_t(uint8_t(table[i + 1])) << 8 |
         uint32_t(uint8_t(table[i + 2])) << 16 | uint32_t(uint8_t(table[i + 3])) << 24;
}

// The nibbles of the lane's four rows, from one 16-byte load.
struct NibbleCodes {
  uint4 x;
};

// A tile of 32 columns of nibbles.
struct NibbleTile {
  using Codes = NibbleCodes;
  static __device__ __forceinline__ Codes load(const auto& tile, int, const Lane& l) {
    return {load_once(tile.q + 64 * l.t + 16 * l.quad)};
  }
};

// Codes in two planes: the low bits and the high bits, or the first and the last 16 columns.
struct TwoPlanes {
  uint4 low, high;
};
// Joins nibbles with a plane of fifth bits: bit g of byte 4r + k belongs to row r, column 4g + k.
__device__ __forceinline__ void five_bits(const TwoPlanes& c, const Lane& l, Words& w) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Bits 0 of the bytes belong to columns 4t.., bits 4 to columns 16+4t...
    const uint32_t fifth = word_of(c.high, i) >> l.t;
    nibbles(word_of(c.low, i), w.w[i]);
    w.w[i][0] |= (fifth & 0x01010101) << 4;
    w.w[i][1] |= fifth & 0x10101010;
  }
}

}  // namespace chaski
