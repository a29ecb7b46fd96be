// One warp's share of a matmul with block formats: a segment of 32 rows times one token, or up to 8
// or 16 tokens.
//
// The order of additions is that of order.h, whatever other tokens are computed. The prompt kernel
// (matmul_tiles.cuh) keeps the same order.
//
// One token. m16n8k32 has eight columns and one token needs only one. So the eight blocks of a
// group take one column each. Lane 4 g + t loads the activations of block g. The group takes eight
// products; in each, all columns but one are zero. They add up to
//       D[row][c] = dot of the row with block c,
//       lane 4 g + t holding blocks 2t, 2t+1 of its four rows.
// So converting, scaling and unpacking of scales are spread over all lanes and done once. The sum
// in block order then moves from lane to lane: t = 0 adds its two blocks and passes the sum to t =
// 1. This takes four shuffles a row and group; the bits are those of the plain order.
//
// Several tokens. Columns are tokens, and a lane adds up (four rows) x (tokens 2t, 2t+1). The lane
// that owns a block unpacks its scales as above and passes them on by shuffles.
//
// Instructions for a group and warp (4.25-bit q4: 4 KB of codes), nvcc 13, sm_90: about 590 for one
// token, of which 336 are for the integer pipe, and 1280 for 16 tokens.
#pragma once
#include "cuda/device/mma.cuh"
#include "cuda/device/order.h"
#include "cuda/matmul/matmul.cuh"
#include "cuda/weights/weights.cuh"

namespace chaski {

// The lane's strip of a pair. If the last pair has only one strip, the lanes of the second compute
// the first strip again; that result is never read.
template <class F>
struct StripAt {
  const std::byte* strip = nullptr;
  StripAt() = default;
  __device__ __forceinline__ StripAt(const std::byte* weight, int64_t strip_bytes, int64_t strips,
                                     int64_t pair, const Lane& l) {
    const int64_t at = 2 * pair + l.g / 4;
    strip = weight + (at < strips ? at : strips - 1) * strip_bytes;
  }
  __device__ __forceinline__ const typename F::Tile& tile(int block) const {
    return reinterpret_cast<const typename F::Tile*>(
        strip + kStrip * kHeaderBytes<F>)[block / (F::kBlock / 32)];
  }
  static __device__ __forceinline__ int sub(int block) {
    return F::kBlock == 32 ? 0 : block % (F::kBlock / 32);
  }
};

template <class F>
using Codes = typename Weights<F>::Codes;
template <class F>
using Scales = typename Weights<F>::Scales;
template <class F>
constexpr int kParts = [] {
  if constexpr (requires { Weights<F>::kParts; }) return Weights<F>::kParts;
  return 1;
}();
template <class F>
__device__ __forceinline__ void parts_of(const Codes<F>& codes, int sub, const LaneOf<F>& l,
                                         Words (&part)[kParts<F>]) {
  if constexpr (kParts<F> == 1)
    Weights<F>::words(codes, sub, l, part[0]);
  else
    Weights<F>::parts(codes, sub, l, part);
}

// The weights of one load: the codes of kAhead blocks of a group, and the scales of the lane's two
// blocks of the group. Registers limit kAhead: half a group if codes take 32 bytes a lane and have
// to be unpacked.
template <class F>
struct GroupWeights {
  static constexpr int kAhead = sizeof(Codes<F>) > 16 &&
                                        (F::kDot.halves || F::kDot.mins || F::kBlock == 256)
                                    ? kGroupBlocks / 2
                                    : kGroupBlocks;
  Codes<F> codes[kAhead];
  Scales<F> scales[2];

  __device__ __forceinline__ void load(const StripAt<F>& strip, int group, int blocks,
                                       const Lane& l) {
    load_codes(strip, group, 0, blocks, l);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int mine = group * kGroupBlocks + 2 * l.t + j,
                block = mine < blocks ? mine : blocks - 1;
      scales[j] = Weights<F>::load_scales(strip.strip, strip.tile(block), strip.sub(block), l.quad);
    }
  }
  // Loads the codes of kAhead blocks of the group, beginning with block `first`. In place of blocks
  // past the row's end there are other codes, which are not used or are multiplied by zeros.
  __device__ __forceinline__ void load_codes(const StripAt<F>& strip, int group, int first,
                                             int blocks, const Lane& l) {
    constexpr int kInTile = F::kBlock / 32;
    const auto* tiles = &strip.tile(group * kGroupBlocks);
    const int left = blocks - group * kGroupBlocks;
#pragma unroll
    for (int b = first; b < first + kAhead; ++b)
      if (kInTile == kGroupBlocks || b < left)
        codes[b - first] = Weights<F>::load(tiles[b / kInTile], b % kInTile, l);
  }
};

// Activations as the B operand, in the order of the format's words.
struct ActWords {
  uint32_t b[2];
};
// q: word t of the activations' codes.
template <class F>
__device__ __forceinline__ ActWords act_words(const uint32_t* q) {
  const uint32_t low = q[0], high = q[4];
  if (Weights<F>::kMixed) return {{__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362)}};
  return {{low, high}};
}
template <class F>
__device__ __forceinline__ ActWords act_words(const Act& a, int t) {
  return act_words<F>(reinterpret_cast<const uint32_t*>(a.q) + t);
}

// The values of an activation block besides its codes, in one load. Only as many are loaded as the
// format's dot reads.
template <class F>
struct ActScales {
  float d = 0, ds = 0;
  int half[2] = {0, 0};
  __device__ __forceinline__ void load(const Act& a) {
    if (F::kDot.offset || F::kDot.halves) {
      const uint4 x = load16(&a.d);
      d = __uint_as_float(x.x), ds = __uint_as_float(x.y);
      half[0] = int16_t(x.z), half[1] = int(x.z) >> 16;
    } else if (F::kDot.mins) {
      const uint2 x = load8(&a.d);
      d = __uint_as_float(x.x), ds = __uint_as_float(x.y);
    } else {
      d = a.d;
    }
  }
};
static_assert(offsetof(Act, d) % 16 == 0 && offsetof(Act, half) == offsetof(Act, d) + 8);

// Integer dots of 4 rows with 2 columns. Formats with a scale for each 16 columns keep the halves
// separate.
template <class F>
struct Dots {
  static constexpr int kHalves = F::kDot.halves || F::kDot.apart ? 2 : 1;
  int32_t d[kHalves][2][4];  // [half][product][row of the product, column]

  // Starts the sums at minus the offset of the codes times the activations' sum.
  __device__ __forceinline__ void start(const ActScales<F> (&a)[2]) {
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (kHalves == 1)
          d[0][p][k] = -F::kDot.offset * (a[k % 2].half[0] + a[k % 2].half[1]);
        else
          d[0][p][k] = -F::kDot.offset * a[k % 2].half[0],
          d[kHalves - 1][p][k] = -F::kDot.offset * a[k % 2].half[1];
      }
  }
  __device__ __forceinline__ void multiply(const Words& w, const ActWords& a) {
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const uint32_t rows[4] = {w.w[2 * p][0], w.w[2 * p + 1][0], w.w[2 * p][1], w.w[2 * p + 1][1]};
      if (kHalves == 1) {
        mma_s8(d[0][p], rows, a.b);
      } else {
        mma_s8(d[0][p], rows, {a.b[0], 0});
        mma_s8(d[kHalves - 1][p], rows, {0, a.b[1]});
      }
    }
  }
  // Returns acc plus the block's part of row i, column j, in the order of quant/panel.h.
  __device__ __forceinline__ float add(float acc, int i, int j, const RowScales& r,
                                       const ActScales<F>& a) const {
    const int k = 2 * (i % 2) + j;
    if (F::kDot.apart) {
      acc = fmaf(float(d[0][i / 2][k]), r.d[i] * a.d, acc);
      return fmaf(float(d[kHalves - 1][i / 2][k]), r.m[i] * a.d, acc);
    }
    const int dot = kHalves == 1
                        ? d[0][i / 2][k]
                        : r.s[0][i] * d[0][i / 2][k] + r.s[1][i] * d[kHalves - 1][i / 2][k];
    acc = fmaf(float(dot), r.d[i] * a.d, acc);
    if (F::kDot.mins) {
      if (kHalves == 1)
        acc = fmaf(r.m[i], a.ds, acc);
      else
        acc = fmaf(float(r.mins[0][i] * a.half[0] + r.mins[1][i] * a.half[1]), r.m[i] * a.d, acc);
    }
    return acc;
  }
};

// Adds group `group` of the lane's row i times the only token to acc[i]. `weights` has the group's
// first kAhead blocks. next() loads what comes after the group, as soon as the registers are free.
template <class F, class Next>
__device__ __forceinline__ void add_group_one(GroupWeights<F>& weights, const StripAt<F>& strip,
                                              int group, int blocks, const Act* acts,
                                              const LaneOf<F>& l, float (&acc)[4], Next next) {
  const int first = group * kGroupBlocks;
  ActWords mine{{0, 0}};
  if (first + l.g < blocks) mine = act_words<F>(acts[first + l.g], l.t);
  ActScales<F> a[2];
  RowScales r[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (first + 2 * l.t + j < blocks) a[j].load(acts[first + 2 * l.t + j]);
    Weights<F>::panel(weights.scales[j], F::kBlock == 32 ? 0 : 2 * l.t + j, r[j]);
  }
  Dots<F> dots;
  dots.start(a);
#pragma unroll
  for (int b = 0; b < kGroupBlocks; ++b) {
    if (b == weights.kAhead) weights.load_codes(strip, group, b, blocks, l);
    const Codes<F>& codes = weights.codes[b % weights.kAhead];
    const ActWords x{{l.g == b ? mine.b[0] : 0, l.g == b ? mine.b[1] : 0}};
    if constexpr (kParts<F> == 2) {
      Words part[2];
      Weights<F>::parts(codes, b, l, part);
      dots.multiply(part[0], x), dots.multiply(part[1], x);
    } else {
      Words w;
      Weights<F>::words(codes, b, l, w);
      dots.multiply(w, x);
    }
  }
  next();
#pragma unroll
  for (int t = 0; t < 4; ++t)  // every lane adds, but only the sum of lane t is kept
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float sum = dots.add(dots.add(acc[i], i, 0, r[0], a[0]), i, 1, r[1], a[1]);
      acc[i] = __shfl_sync(kAllLanes, sum, t, 4);
    }
}

// The scales of block b of a group, which lane t = b / 2 has unpacked.
template <class F>
__device__ __forceinline__ RowScales scales_of_block(const RowScales (&mine)[2], int b) {
  const RowScales& from = mine[b % 2];
  RowScales r;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    r.d[i] = __shfl_sync(kAllLanes, from.d[i], b / 2, 4);
    if (F::kDot.mins || F::kDot.apart) r.m[i] = __shfl_sync(kAllLanes, from.m[i], b / 2, 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (F::kDot.halves) r.s[h][i] = __shfl_sync(kAllLanes, from.s[h][i], b / 2, 4);
      if (F::kDot.halves && F::kDot.mins)
        r.mins[h][i] = __shfl_sync(kAllLanes, from.mins[h][i], b / 2, 4);
    }
  }
  return r;
}

// Up to 8 kTiles tokens of one group of activations (ActsView::at() in operand.h), from token
// `first` of the group on, at one block after another. A lane reads words of token 8n + g and
// scales of tokens 8n + 2t, 8n + 2t + 1. Tokens past the last are read too: there is other memory
// (kPastActs), and their sums are never written. So all loads of a block are at constant distances
// from two addresses.
template <int kTiles>
struct TokenTiles {
  const std::byte *words, *scales;  // of token g and of token 2t
  int64_t block_bytes;
  __device__ __forceinline__ TokenTiles(const ActsView& view, int64_t token, int block,
                                        const Lane& l)
      : block_bytes(view.width(token / kGroup) * int64_t(sizeof(Act))) {
    const auto* first = reinterpret_cast<const std::byte*>(view.group(token / kGroup)) +
                        block * block_bytes + token % kGroup * int64_t(sizeof(Act));
    words = first + l.g * int(sizeof(Act)) + 4 * l.t, scales = first + 2 * l.t * int(sizeof(Act));
  }
  __device__ __forceinline__ const uint32_t* words_of(int n) const {
    return reinterpret_cast<const uint32_t*>(words + 8 * n * int(sizeof(Act)));
  }
  __device__ __forceinline__ const Act& scales_of(int n, int j) const {
    return *reinterpret_cast<const Act*>(scales + (8 * n + j) * int(sizeof(Act)));
  }
  __device__ __forceinline__ void advance() { words += block_bytes, scales += block_bytes; }
};

// Adds the group times tokens 8 tile + 2t + column to acc[tile][column][i]. `tokens` are at the
// group's first block, and then at the next group's.
template <class F, int kTiles>
__device__ __forceinline__ void add_group_many(GroupWeights<F>& weights, const StripAt<F>& strip,
                                               int group, int blocks, TokenTiles<kTiles>& tokens,
                                               const LaneOf<F>& l, float (&acc)[kTiles][2][4]) {
  const int left = blocks - group * kGroupBlocks;
  RowScales mine[2];
#pragma unroll
  for (int j = 0; j < 2; ++j)
    Weights<F>::panel(weights.scales[j], F::kBlock == 32 ? 0 : 2 * l.t + j, mine[j]);
#pragma unroll
  for (int b = 0; b < kGroupBlocks; ++b) {
    if (b >= left) break;
    if (b == weights.kAhead) weights.load_codes(strip, group, b, blocks, l);
    ActWords x[kTiles];
    ActScales<F> a[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      x[n] = act_words<F>(tokens.words_of(n));
#pragma unroll
      for (int j = 0; j < 2; ++j) a[n][j].load(tokens.scales_of(n, j));
    }
    tokens.advance();
    const RowScales r = scales_of_block<F>(mine, b);
    Words part[kParts<F>];
    parts_of<F>(weights.codes[b % weights.kAhead], b, l, part);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      Dots<F> dots;
      dots.start(a[n]);
#pragma unroll
      for (const Words& w : part) dots.multiply(w, x[n]);
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[n][j][i] = dots.add(acc[n][j][i], i, j, r, a[n][j]);
    }
  }
}

}  // namespace chaski
