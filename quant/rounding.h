// Helpers that the encoders share.
#pragma once
#include <algorithm>
#include <cmath>

namespace chaski {

inline float max_abs(const float* x, int n) {
  float most[4] = {};  // four chains, so that no addition waits for another
  int i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; ++k) most[k] = std::max(most[k], std::fabs(x[i + k]));
  for (; i < n; ++i) most[0] = std::max(most[0], std::fabs(x[i]));
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

// The nearest integer for |x| < 2^22, computed by the float adder: in the searches that is ten
// times as fast as a library call.
inline float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

}  // namespace chaski
