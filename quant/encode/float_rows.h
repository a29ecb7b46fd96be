// Rows of floats as bf16, and as e4m3 under a scale for the row: for model folders of other
// programs.
#pragma once
#include <cstddef>
#include <cstdint>

namespace chaski {

struct Bf16Row {
  int64_t changed = 0;  // numbers whose value is another one now
  bool finite = true;   // false: a number is NaN, infinite, or too large for bf16
};

// Rounds to the nearest bf16, ties to even.
Bf16Row bf16_row(const float* x, int64_t n, std::byte* out);

// The smallest power of two with which no number of the row is above 448 times the scale. e4m3 is a
// float format, so a scale between two powers would hardly lose less; and a power times a code is
// exact in bf16, f16 and f32, so every program computes the same weight. 1 for a row of zeros.
float f8_scale_of(const float* x, int64_t n);

struct F8Row {
  double squares = 0, lost = 0;  // sums of the squares of the numbers, and of their errors
  bool finite = true;            // false: a number is NaN or infinite
};

// Rounds x / scale to the nearest e4m3, ties to even. A number above 448 times the scale becomes
// that.
F8Row f8_row(const float* x, int64_t n, float scale, std::byte* out);

}  // namespace chaski
