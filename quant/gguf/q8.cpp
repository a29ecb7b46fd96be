// The encoder of q8 and q8f.
#include "quant/gguf/q8.h"

#include "quant/rounding.h"

namespace chaski {

template <class Scale>
void Q8Format<Scale>::encode(const float* x, Block& block) {
  const float d = max_abs(x, 32) / 127;
  if constexpr (sizeof(Scale) == 2)
    block.d = f16_of_f32(d);
  else
    block.d = d;
  const float stored = scale_f32(block.d), inverse = stored > 0 ? 1 / stored : 0;
  // An f16 scale rounded down could ask for 128.
  for (int i = 0; i < 32; ++i)
    block.q[i] = int8_t(std::clamp(std::nearbyint(x[i] * inverse), -127.0f, 127.0f));
}

template void Q8Format<uint16_t>::encode(const float*, Block&);
template void Q8Format<float>::encode(const float*, Block&);

}  // namespace chaski
