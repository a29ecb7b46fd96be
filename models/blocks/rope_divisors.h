// Divisors of rotary frequencies, as GGUF files store them in the tensor rope_freqs.
#pragma once
#include <vector>

namespace chaski {

// For heads of `dim` channels of which only the first `turned` / 2 pairs rotate. The divisor of the
// others is so large that their angles are practically 0.
inline std::vector<float> divisors_of_part(int64_t turned, int64_t dim) {
  std::vector<float> divisors(size_t(dim / 2), 1.0f);
  for (size_t i = size_t(turned / 2); i < divisors.size(); ++i) divisors[i] = 1e30f;
  return divisors;
}

}  // namespace chaski
