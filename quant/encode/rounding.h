// What encoders share.
#pragma once
#include <algorithm>
#include <cmath>

namespace chaski {

inline float max_abs(const float* x, int n) {
  float most[4] = {};  // side by side, so that none waits for another
  int i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; ++k) most[k] = std::max(most[k], std::fabs(x[i + k]));
  for (; i < n; ++i) most[0] = std::max(most[0], std::fabs(x[i]));
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

// Nearest integer for |x| < 2^22, by the float adder: an order of magnitude faster than a library
// call in the searches.
inline float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

}  // namespace chaski
