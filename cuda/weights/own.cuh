// Weights<F> of chaski's own formats (quant/own/): Q4 and Q4H by codebook, Q6 in planes, and the
// trellis codes of Q2, Q3, Q4T and Q5. fragments.cuh describes the interface.
#pragma once
#include "cuda/weights/k_quants.cuh"

namespace chaski {

// Scales of 5 bits in units of the row, with a sign in bit 7.
__device__ __forceinline__ float signed_scale(const uint2& unit, uint32_t bytes, int i) {
  const float size = float_of_bf16(half_word_of(unit, i)) * float_of_byte(bytes & 0x1f1f1f1f, i);
  return __uint_as_float(__float_as_uint(size) ^ (bytes << (24 - 8 * i) & 0x80000000));
}
// Entry k of four centres.
template <const auto& kCentres>
__device__ __forceinline__ float centre_of(uint32_t k) {
  return __uint_as_float(__byte_perm(kFourBytes<kCentres, 0>, 0x4b000000, 0x7650 | k)) - 0x1p23f;
}

template <>
struct Weights<Q4> : NibbleTile, NibbleLookUp<Q4::kCodebook> {
  struct Scales {
    uint2 unit;
    uint32_t scale;
  };
  static __device__ __forceinline__ Scales load_scales(const void* strip, const Q4::Tile& tile, int,
                                                       int quad) {
    return {load8(static_cast<const Q4::RowHeader*>(strip) + 4 * quad),
            load4(tile.scale[0] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.d[i] = signed_scale(s.unit, s.scale, i);
      const float choice = float_of_byte(s.scale & 0x60606060, i);  // times 32
      r.m[i] = -(r.d[i] * fmaf(choice, Q4::kCentreStep / 32, Q4::kCentre));
    }
  }
};

template <>
struct Weights<Q4H> : NibbleTile {
  static constexpr bool kMixed = false;  // the halves have scales of their own
  struct Scales {
    uint2 unit;
    uint32_t scale[2];
  };
  using Kept = Weights<Q4>::Kept;
  static __device__ __forceinline__ void words(const Codes& c, int sub, const auto& l, Words& w) {
    Weights<Q4>::words(c, sub, l, w);
    unmix(w);
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip, const Q4H::Tile& tile,
                                                       int, int quad) {
    return {load8(static_cast<const Q4H::RowHeader*>(strip) + 4 * quad),
            {load4(tile.scale[0] + 4 * quad), load4(tile.scale[1] + 4 * quad)}};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.d[i] = r.m[i] = __uint_as_float(half_word_of(s.unit, i) << 16);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t b = byte_of(s.scale[h], i);
        r.s[h][i] = b & 128 ? -int(b & 31) : int(b & 31);
        r.mins[h][i] = -r.s[h][i] * (int(Q4::kCentre) + int(b >> 5 & 3) * int(Q4::kCentreStep));
      }
    }
  }
};

template <>
struct Weights<Q6> {
  static constexpr bool kMixed = false;
  using Codes = TwoPlanes;
  struct Scales {
    uint2 unit;
    uint32_t scale;
  };
  static __device__ __forceinline__ Codes load(const Q6::Tile& tile, int, const Lane& l) {
    return {load_once(tile.q + 64 * l.t + 16 * l.quad),
            load_once(tile.high[l.t % 2] + 16 * l.quad)};
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q6_K>::words(c, sub, l, w);
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip, const Q6::Tile& tile, int,
                                                       int quad) {
    return {load8(static_cast<const Q6::RowHeader*>(strip) + 4 * quad),
            load4(tile.scale + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t b = byte_of(s.scale, i);
      r.d[i] = float_of_bf16(half_word_of(s.unit, i)) * float(int(b & 63));
      r.m[i] = -(r.d[i] * centre_of<Q6::kCentres>(b >> 6));
    }
  }
};

// Trellis codes (quant/own/trellis.h). A lane loads four words and a byte for each row: the row's
// path, the plane with the rest of the lane's columns, the last plane if there are three, and the
// row's last byte. Where columns have one bit of rest (F::kWider), the columns of lane t = 0 have a
// second one and the wide codebook.
//
// A column depends on four steps of the path, which one nibble of path << (3 - t) has: step i in
// bit 3, steps i - 1, i - 2 and i - 3 below it. Three shifts give both steps:
//
//        `upper` is bit 3 in path << (3 - t) ^ path << (4 - t) ^ path << (6 - t).
//        `lower` is bit 2 in path << (4 - t).
//
// The order of the tables takes the fewest instructions to put a nibble together, with `upper` in
// bit 3. The shifts are products, because the pipe for integers has more to do than the one for
// products.
constexpr int bit_of(int x, int i) { return x >> i & 1; }
template <class F>
struct TrellisTables {
  static constexpr auto kNibbles = [] {
    std::array<uint8_t, 16> table{};  // by nibble: bits 0 and 1 are the rest, bit 2 is lower
    for (int n = 0; n < 16; ++n)
      table[size_t(n)] = F::kCodebook[4 * (n & 3) + 2 * bit_of(n, 3) + bit_of(n, 2)];
    return table;
  }();
  struct Kept : NibbleTable<kNibbles> {
    __device__ __forceinline__ explicit Kept(const Lane&) {}
  };
};
template <class F>
requires(F::kRest == 4) struct TrellisTables<F> {  // the index is the level
  struct Kept {
    __device__ __forceinline__ explicit Kept(const Lane&) {}
  };
};
template <class F>
requires(F::kWider) struct TrellisTables<F> {
  static constexpr auto table_of(const uint8_t (&codebook)[16]) {
    // By nibble: bit 0 is the first bit of the rest, bit 1 its second (wide columns), bit 2 lower.
    std::array<uint8_t, 16> table{};
    for (int n = 0; n < 16; ++n)
      table[size_t(n)] =
          codebook[8 * bit_of(n, 1) + 4 * bit_of(n, 0) + 2 * bit_of(n, 3) + bit_of(n, 2)];
    return table;
  }
  static constexpr auto kNibbles = table_of(F::kCodebook), kWide = table_of(F::kWideCodebook);
  struct Kept {
    uint32_t words[4];
    __device__ __forceinline__ explicit Kept(const Lane& l)
        : words{choose<0>(l), choose<4>(l), choose<8>(l), choose<12>(l)} {}
    template <int kFirst>
    static __device__ __forceinline__ uint32_t choose(const Lane& l) {
      return l.t == 0 ? kFourBytes<kWide, kFirst> : kFourBytes<kNibbles, kFirst>;
    }
    __device__ __forceinline__ uint32_t word(int i) const { return words[i]; }
  };
};
template <class F>
requires(F::kThird) struct TrellisTables<F> {
  static constexpr auto table_of(const uint8_t (&levels)[16]) {
    std::array<uint8_t, 16> table{};  // bit 0: the third bit of rest; 1, 2: the others
    for (int n = 0; n < 16; ++n)
      table[size_t(n)] = levels[8 * bit_of(n, 0) + 2 * (n >> 1 & 3) + bit_of(n, 3)];
    return table;
  }
  static constexpr auto kEven = table_of(F::kEvenLevels), kOdd = table_of(F::kOddLevels);
  struct Kept {
    NibbleTable<kEven> even;
    NibbleTable<kOdd> odd;
    __device__ __forceinline__ explicit Kept(const Lane&) {}
  };
};

template <class F>
struct TrellisWeights {
  static constexpr bool kMixed = F::kRest < 4;
  static constexpr int kParts = kMixed ? 2 : 1;
  struct Codes {
    uint4 path, rest, third;
    uint32_t last;
  };
  struct Kept {
    uint32_t shift[3];  // factors: 3 - t, 4 - t and 6 - t bits to the left
    typename TrellisTables<F>::Kept table;
    __device__ __forceinline__ explicit Kept(const Lane& l)
        : shift{8u >> l.t, 16u >> l.t, 64u >> l.t}, table(l) {}
  };
  using Scales = Weights<Q4>::Scales;
  static __device__ __forceinline__ Codes load(const typename F::Tile& tile, int, const Lane& l) {
    return {load_once(tile.path + 16 * l.quad), load_once(tile.rest[F::plane(l.t)] + 16 * l.quad),
            F::kThird ? load_once(tile.rest[F::kRest - 1] + 16 * l.quad) : uint4{},
            load4(tile.own[F::kWider] + 4 * l.quad)};
  }
  // `upper` in bit 3 and `lower` in bit 2 of each nibble; the other bits are not zero.
  struct Steps {
    uint32_t lower, upper;
    __device__ __forceinline__ Steps(uint32_t path, const Kept& kept)
        : lower(path * kept.shift[1]), upper(path * kept.shift[0] ^ lower ^ path * kept.shift[2]) {}
    __device__ __forceinline__ uint32_t both() const {
      return select_bits(0x88888888, upper, lower);
    }
  };
  static __device__ __forceinline__ uint32_t wide_bits(uint32_t last, int i) {
    // Bits k and 4 + k of the row's byte move to bits 1 and 5 of byte k. Bit 7 would be added to
    // another bit.
    const uint32_t spread = (last >> 8 * i & 127) * (1 << 1 | 1 << 8 | 1 << 15 | 1 << 22),
                   top = i < 3 ? last << (22 - 8 * i) : last >> 2;
    return select_bits(0x20000000, top, spread);
  }
  static __device__ __forceinline__ void parts(const Codes& c, int, const auto& l,
                                               Words (&part)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Steps steps(word_of(c.path, i), l.kept);
      uint32_t x = word_of(c.rest, i);
      if constexpr (F::kThird) {
        x = __funnelshift_l(x, x, 1 - F::shift(l.t));  // turns the rest's bits to bits 1 and 2
        x = select_bits(0x66666666, x, word_of(c.third, i) >> l.t);
        x = select_bits(0x88888888, steps.upper, x);
        uint32_t even[2][2], odd[2][2];
        look_up(x, l.kept.table.even, even[0], even[1]);
        look_up(x, l.kept.table.odd, odd[0], odd[1]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // -1 where bit 2 of a nibble is set
          const uint32_t mask = permute_bytes(0, ~0u, steps.lower >> 16 * half);
#pragma unroll
          for (int p = 0; p < 2; ++p)
            part[p].w[i][half] = select_bits(mask, odd[p][half], even[p][half]);
        }
      } else {
        x = x >> F::shift(l.t);
        if (F::kWider) x = select_bits(0x11111111, x, wide_bits(c.last, i));
        x = select_bits(0x33333333, x, steps.both());
        look_up(x, l.kept.table, part[0].w[i], part[1].w[i]);
      }
    }
  }
  static __device__ __forceinline__ void words(const Codes& c, int sub, const auto& l, Words& w) {
    if constexpr (kMixed) {
      Words part[2];
      parts(c, sub, l, part);
      add_parts(part, false, w);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t both = Steps(word_of(c.path, i), l.kept).both() >> 2 & 0x33333333,
                       rest = word_of(c.rest, i);
        w.w[i][0] = (rest & 0x0f0f0f0f) * 4 + (both & 0x0f0f0f0f);
        w.w[i][1] = select_bits(0x3c3c3c3c, rest >> 2, both >> 4);
      }
    }
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip,
                                                       const typename F::Tile& tile, int,
                                                       int quad) {
    return {load8(static_cast<const typename F::RowHeader*>(strip) + 4 * quad),
            load4(tile.own[0] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.d[i] = signed_scale(s.unit, s.scale, i);
      r.m[i] = -(r.d[i] * centre_of<F::kCentres>(s.scale >> (8 * i + 5) & 3));
    }
  }
};
template <>
struct Weights<Q3> : TrellisWeights<Q3> {};
template <>
struct Weights<Q2> : TrellisWeights<Q2> {};
template <>
struct Weights<Q4T> : TrellisWeights<Q4T> {};
template <>
struct Weights<Q5> : TrellisWeights<Q5> {};

}  // namespace chaski
