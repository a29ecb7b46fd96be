// The Hadamard rotation of a head's keys and queries. It spreads the few large channels of keys
// over all channels, so that fewer bits are enough for each. The dot product of two rotated vectors
// equals that of the original vectors (Ashkboos et al. 2024, QuaRot).
#pragma once
#include <cmath>

namespace chaski {

// Rotates in place, in blocks of a power of two; orthonormal. Channels after the last whole block
// stay as they are. Each sum has only two terms, so every instruction set gives the same bits.
[[gnu::always_inline]] inline void hadamard(float* x, int n, int block) {
  if (block < 2) return;
  const float scale = 1 / std::sqrt(float(block));
  for (float* end = x + n; end - x >= block; x += block) {
    for (int half = 1; half < block; half *= 2)
      for (int i = 0; i < block; i += 2 * half)
        for (int k = i; k < i + half; ++k) {
          const float a = x[k], b = x[k + half];
          x[k] = a + b, x[k + half] = a - b;
        }
    for (int i = 0; i < block; ++i) x[i] *= scale;
  }
}

}  // namespace chaski
