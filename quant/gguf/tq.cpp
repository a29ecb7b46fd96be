#include "quant/gguf/tq.h"

#include <algorithm>

#include "quant/rounding.h"

namespace chaski {

void TQ2_0::encode(const float* x, Block& block) {
  block = {};
  block.d = f16_of_f32(max_abs(x, kBlock));
  const float d = f32_of_f16(block.d), inverse = d > 0 ? 1 / d : 0;
  for (int i = 0; i < kBlock; ++i) {
    const int q = int(std::clamp(nearest(x[i] * inverse), -1.0f, 1.0f)) + 1;
    block.q[32 * (i / 128) + i % 32] |= uint8_t(q << 2 * (i % 128 / 32));
  }
}

}  // namespace chaski
