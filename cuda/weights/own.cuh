// Weights<F> of chaski's own formats (quant/own/): Q4 and Q4H by codebook, Q6 in planes, and the
// trellis codes of Q2, Q3, Q4T and Q5. fragments.cuh describes the interface.
#pragma once
#include "cuda/weights/k_quants.cuh"

namespace chaski {

template <>
struct Weights<Q4> : NibbleTile {
  static constexpr bool kMixed = true;
  struct Scales {
    uint2 unit;
    uint32_t scale;
  };
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane&, Words& w) {
    constexpr uint32_t t0 = four_bytes(Q4::kCodebook, 0), t1 = four_bytes(Q4::kCodebook, 4),
                       t2 = four_bytes(Q4::kCodebook, 8), t3 = four_bytes(Q4::kCodebook, 12);
    const uint32_t table[4] = {t0, t1, t2, t3};
#pragma unroll
    for (int i = 0; i < 4; ++i) look_up(word_of(c.x, i), table, w.w[i]);
  }
  static __device__ __forceinline__ Scales load_scales(const void* strip, const Q4::Tile& tile, int,
                                                       int quad) {
    return {load8(static_cast<const Q4::RowHeader*>(strip) + 4 * quad),
            load4(tile.scale[0] + 4 * quad)};
  }
  static __device__ __forceinline__ void panel(const Scales& s, int, RowScales& r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t b = byte_of(s.scale, i);
      const float size = __uint_as_float(half_word_of(s.unit, i) << 16) * float(int(b & 31));
      r.d[i] = __uint_as_float(__float_as_uint(size) ^ (b & 128) << 24);
      r.m[i] = -(r.d[i] * fmaf(float(int(b >> 5 & 3)), Q4::kCentreStep, Q4::kCentre));
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
  static __device__ __forceinline__ void words(const Codes& c, int sub, const Lane& l, Words& w) {
    Weights<Q4>::words(c, sub, l, w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t mixed[2] = {w.w[i][0], w.w[i][1]};
      w.w[i][0] = permute_bytes(mixed[0], mixed[1], 0x6420),
      w.w[i][1] = permute_bytes(mixed[0], mixed[1], 0x7531);
    }
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
      r.m[i] = -(r.d[i] * float(entry_of<Q6::kCentres>(int(b >> 6))));
    }
  }
};

// Trellis codes (quant/own/trellis.h). A lane loads four words and a byte for each row: the row's
// path, the plane with the rest of the lane's columns, the last plane if there are three, and the
// row's last byte. Where columns have one bit of rest (F::kWider), the columns of lane t = 0 have a
// second one and the wide codebook.
template <class F>
struct TrellisWeights {
  static constexpr bool kMixed = F::kRest < 4;
  struct Codes {
    uint4 path, rest, third;
    uint32_t last;
  };
  using Scales = Weights<Q4>::Scales;
  static __device__ __forceinline__ Codes load(const typename F::Tile& tile, int, const Lane& l) {
    return {load_once(tile.path + 16 * l.quad), load_once(tile.rest[F::plane(l.t)] + 16 * l.quad),
            F::kThird ? load_once(tile.rest[F::kRest - 1] + 16 * l.quad) : uint4{},
            load4(tile.own[F::kWider] + 4 * l.quad)};
  }
  template <const auto& kCodebook>
  static __device__ __forceinline__ void look_up_in(uint32_t x, uint32_t (&w)[2]) {
    constexpr uint32_t t0 = four_bytes(kCodebook, 0), t1 = four_bytes(kCodebook, 4),
                       t2 = four_bytes(kCodebook, 8), t3 = four_bytes(kCodebook, 12);
    const uint32_t table[4] = {t0, t1, t2, t3};
    look_up(x, table, w);
  }
  static __device__ __forceinline__ void words(const Codes& c, int, const Lane& l, Words& w) {
    constexpr uint32_t kBits = 0x11111111, kOnes = 0x01010101;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t path = word_of(c.path, i), upper = upper_steps(path) >> l.t,
                     lower = lower_steps(path) >> l.t, rest = word_of(c.rest, i);
      if constexpr (F::kRest == 4) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          w.w[i][half] = (rest >> 4 * half & 0x0f0f0f0f) << 2 | (upper >> 4 * half & kOnes) << 1 |
                         (lower >> 4 * half & kOnes);
      } else if constexpr (F::kThird) {
        const uint32_t pair = (word_of(c.third, i) >> l.t & kBits) << 3 |
                              (rest >> F::shift(l.t) & kBits * F::kRestMask) << 1 | (upper & kBits);
        uint32_t even[2], odd[2];
        look_up_in<F::kEvenLevels>(pair, even);
        look_up_in<F::kOddLevels>(pair, odd);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t mask = permute_bytes(0xff00, 0, (lower & kBits) >> 16 * half);
          w.w[i][half] = (odd[half] & mask) | (even[half] & ~mask);
        }
      } else {
        const uint32_t x = (rest >> F::shift(l.t) & kBits * F::kRestMask) << 2 |
                           (upper & kBits) << 1 | (lower & kBits);
        if (F::kWider && l.t == 0) {
          const uint32_t b = byte_of(c.last, i);
          look_up_in<F::kWideCodebook>(
              x | (b & 0x11) << 3 | (b & 0x22) << 10 | (b & 0x44) << 17 | (b & 0x88) << 24, w.w[i]);
        } else {
          look_up_in<F::kCodebook>(x, w.w[i]);
        }
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
      const uint32_t b = byte_of(s.scale, i);
      const float size = float_of_bf16(half_word_of(s.unit, i)) * float(int(b & 31));
      r.d[i] = __uint_as_float(__float_as_uint(size) ^ (b & 128) << 24);
      r.m[i] = -(r.d[i] * float(entry_of<F::kCentres>(int(b >> 5 & 3))));
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
