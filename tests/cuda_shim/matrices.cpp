#include "tests/cuda_shim/matrices.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "quant/half.h"
#include "tests/cuda_shim/fibers.h"
#include "tests/cuda_shim/modes.h"

namespace shim {

namespace {

template <class D>
struct Fragments {
  D* d;
  const uint32_t *a, *b;
};

int signed_byte(uint32_t word, int i) { return int8_t(word >> 8 * i); }
float half_item(uint32_t word, int i) { return chaski::f32_of_f16(uint16_t(word >> 16 * i)); }
float bf16_item(uint32_t word, int i) { return chaski::f32_of_bf16(uint16_t(word >> 16 * i)); }

// The sum of n products and `start` as tensor cores add: each addend is truncated to 24 bits below
// the largest one's exponent, and so is the sum. Published measurements find this for several
// generations; the bits that are kept differ between them.
float truncated_sum(float start, const double* products, int n) {
  double largest = std::fabs(start);
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(products[i]));
  if (!(largest > 0) || !std::isfinite(largest)) {
    for (int i = 0; i < n; ++i) start += float(products[i]);
    return start;
  }
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 24);
  double sum = std::trunc(start / unit);
  for (int i = 0; i < n; ++i) sum += std::trunc(products[i] / unit);
  sum *= unit;
  float rounded = float(sum);
  if (std::fabs(double(rounded)) > std::fabs(sum)) rounded = std::nextafter(rounded, 0.0f);
  return rounded;
}

// A word holds kPerWord items; item_a(word, i) returns one. The order of k is half, t, item.
template <int kPerWord, class D, auto item_a, auto item_b>
void multiply(void* const* lanes, unsigned) {
  constexpr int kK = 8 * kPerWord;
  auto of = [&](int lane) { return static_cast<const Fragments<D>*>(lanes[lane]); };
  D a[16][kK], b[kK][8];
  for (int half = 0, k = 0; half < 2; ++half)
    for (int t = 0; t < 4; ++t)
      for (int i = 0; i < kPerWord; ++i, ++k) {
        for (int row = 0; row < 16; ++row)
          a[row][k] = item_a(of(row % 8 * 4 + t)->a[row / 8 + 2 * half], i);
        for (int column = 0; column < 8; ++column)
          b[k][column] = item_b(of(column * 4 + t)->b[half], i);
      }
  for (int row = 0; row < 16; ++row) {
    D sums[8];
    for (int column = 0; column < 8; ++column)
      sums[column] = of(row % 8 * 4 + column / 2)->d[row / 8 * 2 + column % 2];
    if (std::is_floating_point_v<D> && modes().truncated) {
      for (int column = 0; column < 8; ++column)
        for (int first = kK - 8; first >= 0; first -= 8) {
          double products[8];
          for (int k = 0; k < 8; ++k)
            products[k] = double(a[row][first + k]) * double(b[first + k][column]);
          sums[column] = D(truncated_sum(float(sums[column]), products, 8));
        }
    } else {
      for (int k = 0; k < kK; ++k)
        for (int column = 0; column < 8; ++column) sums[column] += a[row][k] * b[k][column];
    }
    for (int column = 0; column < 8; ++column)
      of(row % 8 * 4 + column / 2)->d[row / 8 * 2 + column % 2] = sums[column];
  }
}

template <int kPerWord, auto item_a, auto item_b, class D>
void mma(D (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Fragments<D> mine{d, a, b};
  together(kWholeWarp, &mine, "mma", multiply<kPerWord, D, item_a, item_b>);
}

}  // namespace

void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma<4, signed_byte, signed_byte>(d, a, b);
}
void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma<2, half_item, half_item>(d, a, b);
}
void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma<2, bf16_item, bf16_item>(d, a, b);
}

}  // namespace shim
