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
//             Kept       optional: numbers that words() needs and a lane keeps in registers
//             parts()    optional, with kParts = 2: bytes whose sums are those of words(). With one
//                        token it takes less to multiply both parts, because the product adds.
//             Scales     what load_scales() reads; panel() computes d, m, s and mins of the four
//                        rows, bit for bit as the format's row_panel does.
// Float formats have no Weights<F>; see float_dot.cuh and fma_dot.cuh.
#pragma once
#include "cuda/device/loads.cuh"
#include "cuda/device/math.cuh"
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

// A lane of a kernel for weights of format F. All 32 lanes of a warp construct it together, because
// a table in registers is shuffled (in_register).
template <class F>
struct LaneOf : Lane {};
template <class F>
requires requires { typename Weights<F>::Kept; }
struct LaneOf<F> : Lane {
  typename Weights<F>::Kept kept{*this};
};

// Returns x, and hides from nvcc that x is a constant and the same in all lanes: each gets it from
// the first of four lanes. nvcc writes constants and uniform registers to registers again and
// again, 100 times for a group of q4.
__device__ __forceinline__ uint32_t in_register(uint32_t x) {
  return __shfl_sync(kAllLanes, x + threadIdx.x % 4, 0, 4);
}

__device__ __forceinline__ void nibbles(uint32_t x, uint32_t (&w)[2]) {
  w[0] = x & 0x0f0f0f0f, w[1] = x >> 4 & 0x0f0f0f0f;
}

template <const auto& kBytes, int kFirst>
constexpr uint32_t kFourBytes = uint8_t(kBytes[kFirst]) |
                                uint32_t(uint8_t(kBytes[kFirst + 1])) << 8 |
                                uint32_t(uint8_t(kBytes[kFirst + 2])) << 16 |
                                uint32_t(uint8_t(kBytes[kFirst + 3])) << 24;

// A table of 16 bytes for nibbles. Every other word is an immediate operand of the look-up.
template <const auto& kBytes>
struct NibbleTable {
  uint32_t first = in_register(kFourBytes<kBytes, 0>), third = in_register(kFourBytes<kBytes, 8>);
  __device__ __forceinline__ uint32_t word(int i) const {
    return i == 0   ? first
           : i == 1 ? kFourBytes<kBytes, 4>
           : i == 2 ? third
                    : kFourBytes<kBytes, 12>;
  }
};
// Looks eight nibbles up in the halves of a table. The results are in mixed order. If a nibble
// belongs to the other half, permute_bytes repeats the top bit of a byte: the result is 0, or -1 if
// that byte is negative.
__device__ __forceinline__ void look_up(uint32_t x, const auto& table, uint32_t (&of_low)[2],
                                        uint32_t (&of_high)[2]) {
  const uint32_t other = x ^ 0x88888888;
  of_low[0] = permute_bytes(table.word(0), table.word(1), x);
  of_low[1] = permute_bytes(table.word(0), table.word(1), x >> 16);
  of_high[0] = permute_bytes(table.word(2), table.word(3), other);
  of_high[1] = permute_bytes(table.word(2), table.word(3), other >> 16);
}
// Adds the bytes of two parts. Bytes of `low` that are not negative are zero, or those of `high`
// are.
__device__ __forceinline__ void add_parts(const Words (&part)[2], bool negative, Words& w) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t x = part[0].w[i][half], y = part[1].w[i][half];
      w.w[i][half] = negative ? ((x & 0x7f7f7f7f) + y) ^ (x & 0x80808080) : x | y;
    }
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

// Nibbles that are looked up. If kNegative, the first eight bytes of the codebook are negative, and
// one has been added to the others.
template <const auto& kCodebook, bool kNegative = false>
struct NibbleLookUp {
  static constexpr bool kMixed = true;
  static constexpr int kParts = 2;
  struct Kept {
    NibbleTable<kCodebook> table;
    __device__ __forceinline__ explicit Kept(const Lane&) {}
  };
  static __device__ __forceinline__ void parts(const NibbleCodes& c, int, const auto& l,
                                               Words (&part)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) look_up(word_of(c.x, i), l.kept.table, part[0].w[i], part[1].w[i]);
  }
  static __device__ __forceinline__ void words(const NibbleCodes& c, int sub, const auto& l,
                                               Words& w) {
    Words part[2];
    parts(c, sub, l, part);
    add_parts(part, kNegative, w);
  }
};

// Brings bytes in mixed order back to the order of columns.
__device__ __forceinline__ void unmix(Words& w) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t mixed[2] = {w.w[i][0], w.w[i][1]};
    w.w[i][0] = permute_bytes(mixed[0], mixed[1], 0x6420),
    w.w[i][1] = permute_bytes(mixed[0], mixed[1], 0x7531);
  }
}

// Codes in two planes: the low bits and the high bits, or the first and the last 16 columns.
struct TwoPlanes {
  uint4 low, high;
};
// Byte i of x as a float.
__device__ __forceinline__ float float_of_byte(uint32_t x, int i) {
  return __uint_as_float(__byte_perm(x, 0x4b000000, 0x7650 | i)) - 0x1p23f;
}

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
