// What encoders share.
#pragma once
#include <algorithm>
#include <cmath>

namespace chaski {

inline float max_abs(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

// Nearest integer for |x| < 2^22, by the float adder: an order of magnitude faster than a library
// call in the searches.
inline float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

}  // namespace chaski
