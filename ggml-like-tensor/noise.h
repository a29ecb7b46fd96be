// The noise of a draw and the two functions that compute it. They give the same bits everywhere: on
// the host in engine/sampling/sampler.h, on a device in cuda/draw/draw.cu. A draw is argmax logit /
// T + gumbel(seed, position, token).
//
// The functions are constexpr, so that device code may call them. They use plain products and sums
// in a fixed order, because log and exp differ between C libraries.
#pragma once
#include <bit>
#include <cstdint>

namespace chaski {

// Philox 4x32 with 10 rounds (Salmon et al. 2011). Returns the first word of noise for a 128-bit
// counter and a 64-bit key.
constexpr uint32_t philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t key0,
                          uint32_t key1) {
  for (int i = 0; i < 10; ++i) {
    const uint64_t a = uint64_t(0xD2511F53) * c0, b = uint64_t(0xCD9E8D57) * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ key0, c1 = uint32_t(b);
    c2 = uint32_t(a >> 32) ^ c3 ^ key1, c3 = uint32_t(a);
    key0 += 0x9E3779B9, key1 += 0xBB67AE85;
  }
  return c0;
}

// The natural logarithm of a normal x > 0: x = m 2^e with m in [0.7, 1.42), ln m = 2 artanh f, f =
// (m - 1) / (m + 1), |f| < 0.173. The series ends where f^2k / (2k + 1) is below 2^-57. The error
// is a few units of the last place.
constexpr double log64(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int e = int(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) m = m * 0.5, ++e;
  const double f = (m - 1) / (m + 1), s = f * f;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * s + 1.0 / k;
  return double(e) * 0.6931471805599453 + 2 * f * sum;
}

// e^x for x <= 0: x = n ln 2 + r, |r| < 0.35, Taylor polynomial of degree 13; 0 below -700.
constexpr double exp64(double x) {
  if (!(x > -700)) return 0;
  const int n = int(x * 1.4426950408889634 - 0.5);  // rounds to nearest: x is negative
  const double r =
      (x - double(n) * 0.693147180369123816490) - double(n) * 1.90821492927058770002e-10;
  double y = 1;
  for (int k = 13; k >= 1; --k) y = 1 + r * y * (1.0 / k);
  return y * std::bit_cast<double>(uint64_t(n + 1023) << 52);
}

// Noise of a position, for no particular token: uniform between 0 and 1, independent of the Gumbel
// noise.
constexpr double uniform(uint64_t seed, uint64_t position) {
  const uint32_t word = philox(0, uint32_t(position), uint32_t(position >> 32), 1, uint32_t(seed),
                               uint32_t(seed >> 32));
  return (double(word) + 0.5) * 0x1p-32;
}

// Reproducible standard Gumbel noise.
constexpr double gumbel(uint64_t seed, uint64_t position, uint32_t token) {
  const uint32_t word = philox(token, uint32_t(position), uint32_t(position >> 32), 0,
                               uint32_t(seed), uint32_t(seed >> 32));
  const double u = (double(word) + 0.5) * 0x1p-32;
  return -log64(-log64(u));
}

}  // namespace chaski
