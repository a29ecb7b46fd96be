// The Hadamard rotation of a head's keys and queries. It spreads the few large channels that keys
// have over all of them, so that 4 bits do for each; a dot product of two rotated vectors is that
// of the vectors (Ashkboos et al. 2024, QuaRot).
#pragma once
#include <cmath>

namespace chaski {

// In place, blocks of the largest power of two that divides n; orthonormal. Sums of two only: the
// same bits in every instruction set.
[[gnu::always_inline]] inline void hadamard(float* x, int n) {
  const int block = n & -n;
  for (int half = 1; half < block; half *= 2)
    for (int i = 0; i < n; i += 2 * half)
      for (int k = i; k < i + half; ++k) {
        const float a = x[k], b = x[k + half];
        x[k] = a + b, x[k + half] = a - b;
      }
  const float scale = 1 / std::sqrt(float(block));
  for (int i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace chaski
