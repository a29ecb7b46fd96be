#include "ggml-like-tensor/ops/lightning_index.h"

namespace chaski {

void LightningIndex::choose(const float* scores, int64_t n, int32_t* chosen) const {
  if (n <= most) {
    std::iota(chosen, chosen + n, 0);
    std::fill(chosen + n, chosen + most, -1);
    return;
  }
  // Finds the rank of the last chosen cell byte by byte, from the highest on. `left` cells of the
  // ranks that begin with `found` are chosen.
  uint32_t found = 0, known = 0;
  int64_t left = most;
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t count[256] = {};
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t rank = TopK::rank(scores[i]);
      if ((rank & known) == found) ++count[rank >> shift & 255];
    }
    uint32_t byte = 255;
    while (count[byte] < left) left -= count[byte--];
    found |= byte << shift, known |= 255u << shift;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t rank = TopK::rank(scores[i]);
    if (rank > found || (rank == found && left-- > 0)) *chosen++ = int32_t(i);
  }
}

}  // namespace chaski
