#include "quant/packed/fp4.h"

#include <algorithm>

#include "quant/rounding.h"

namespace chaski {
namespace {

// The nearest of the magnitudes 0, 1, 2, 3, 4, 6, 8, 12; of two equally near ones the smaller.
int nearest_code(float doubled) {
  constexpr float kBounds[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
  const float size = std::fabs(doubled);
  int code = 0;
  while (code < 7 && size > kBounds[code]) ++code;
  return code | (doubled < 0 ? 8 : 0);
}

float encode_with(const float* x, MXFP4::Block& block) {
  const float inverse = 1 / MXFP4::scale(block.e);
  float error = 0;
  for (int i = 0; i < 32; ++i) {
    const int code = nearest_code(x[i] * inverse);
    uint8_t& pair = block.q[i % 16];
    pair = uint8_t(i < 16 ? code : pair | code << 4);
    const float off = x[i] - MXFP4::at(block, i);
    error += off * off;
  }
  return error;
}

}  // namespace

void MXFP4::encode(const float* x, Block& block) {
  int exponent = 0;
  std::frexp(max_abs(x, 32), &exponent);  // the largest value is below 2^exponent
  block.e = uint8_t(std::clamp(exponent - 3 + 127, 1, 253));
  Block coarser{uint8_t(block.e + 1), {}};
  if (encode_with(x, coarser) < encode_with(x, block)) block = coarser;
}

void MXFP4::set_scale(Block& b, float d) {
  int exponent = 0;
  std::frexp(d, &exponent);
  b.e = std::isfinite(d) ? uint8_t(std::clamp(exponent + 127, 0, 254)) : 255;
}

void NVFP4::set_scale(Block& b, float d) {
  for (int s = 0; s < 4; ++s) b.scale[s] = f8_of_f32(d * float(4 + s) / 2);
}

}  // namespace chaski
