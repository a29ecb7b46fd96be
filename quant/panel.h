// The panel: the form that every block format is unpacked to before it is multiplied, 32 columns of
// small integers with their scales. Formats and kernels meet only here: a new format fills a panel,
// a new kernel consumes one.
//
// The dot product of a row with an activation, block of 32 by block of 32, in this order and no
// other (all ISAs, all widths):
//   plain    i = sum (q - offset) * a                       acc = fma(float(i), d * a.d, acc)
//   halves   i = s0 * sum_first16 + s1 * sum_last16         the same
//   mins     plain:  acc = fma(m, a.ds, acc)
//            halves: acc = fma(float(m0 * a.half0 + m1 * a.half1), m * a.d, acc)
//   apart    the first 16 columns have d, the last 16 m, as if they were two blocks:
//            acc = fma(float(sum_first16), d * a.d, acc)
//            acc = fma(float(sum_last16), m * a.d, acc)
// The integers are exact in int32. The largest: Q6_K's halves, 16 * 32 * 127 * 128 twice, below
// 2^24, so exact in float too; Q2_K's mins, 16 * 127 * 15 twice; a plain q8 block, 32 * 128 * 127.
#pragma once
#include <cmath>
#include <cstdint>

namespace chaski {

// 32 activations: x ~ d * q, |q| <= 127.
struct Act {
  int8_t q[32];
  float d;
  float ds;         // d * (half[0] + half[1])
  int16_t half[2];  // sums of the first and last 16 q
  int32_t unused;   // 0

  // The sum of groups [kFrom, kTo) of four q: of a half or of both.
  template <int kFrom, int kTo>
  constexpr int32_t sum() const {
    static_assert((kFrom == 0 || kFrom == 4) && (kTo == 4 || kTo == 8) && kFrom < kTo);
    return kTo - kFrom == 8 ? half[0] + half[1] : half[kFrom / 4];
  }
  // From q and d.
  constexpr void set_sums() {
    int32_t sums[2] = {0, 0};
    for (int i = 0; i < 32; ++i) sums[i / 16] += q[i];
    set_sums(sums[0], sums[1]);
  }
  constexpr void set_sums(int32_t first, int32_t last) {
    half[0] = int16_t(first), half[1] = int16_t(last), unused = 0;
    ds = d * float(first + last);
  }
};
static_assert(sizeof(Act) == 48);

// How to read a format's panel. `max` bounds the stored byte, which decides how many products an
// int16 can hold.
struct DotKind {
  int offset = 0;
  int max = 255;
  bool is_signed = false;  // bytes are int8 (offset 0)
  bool mins = false;
  bool halves = false;
  bool apart = false;  // the halves' scales are not integers; excludes mins and halves
};

// The panel of one row, in the form that defines dot_block(). Kernels hold 16 of these, one per
// lane.
struct RowPanel {
  uint8_t q[32];
  float d = 0, m = 0;
  int32_t s[2] = {1, 1}, mins[2] = {0, 0};
};

inline float dot_block(const DotKind& kind, const RowPanel& w, const Act& a, float acc) {
  int32_t sum[2] = {0, 0};
  for (int i = 0; i < 32; ++i)
    sum[i / 16] += ((kind.is_signed ? int8_t(w.q[i]) : w.q[i]) - kind.offset) * a.q[i];
  if (kind.apart) {
    acc = std::fma(float(sum[0]), w.d * a.d, acc);
    return std::fma(float(sum[1]), w.m * a.d, acc);
  }
  if (!kind.halves) {
    acc = std::fma(float(sum[0] + sum[1]), w.d * a.d, acc);
    return kind.mins ? std::fma(w.m, a.ds, acc) : acc;
  }
  acc = std::fma(float(w.s[0] * sum[0] + w.s[1] * sum[1]), w.d * a.d, acc);
  return kind.mins ? std::fma(float(w.mins[0] * a.half[0] + w.mins[1] * a.half[1]), w.m * a.d, acc)
                   : acc;
}

// 16 panels as kernels hold them. V is an instruction set's Lanes. w[g] holds columns 4g..4g+3,
// four bytes to a lane.
template <class V>
struct Panel {
  typename V::B w[8];
  typename V::F d, m;
  typename V::I s[2], mins[2];
};

}  // namespace chaski
