// The encoder of nf4.
#include "quant/packed/scaled_floats.h"

#include "quant/rounding.h"

namespace chaski {

namespace {

int nearest_nf4(float y) {
  int code = 0;
  while (code < 15 && y > (NF4::kCodebook[code] + NF4::kCodebook[code + 1]) / 2) ++code;
  return code;
}

NF4::Block nf4_under(const float* x, float d) {
  NF4::Block block{d, {}};
  for (int i = 0; i < 64; ++i) NF4::set_nibble(block, i, nearest_nf4(d > 0 ? x[i] / d : 0));
  return block;
}

}  // namespace

void NF4::encode(const float* x, const float* factors, Effort effort, Block& block) {
  const float largest = max_abs(x, 64);
  block = nf4_under(x, largest);  // it stays if the squares are beyond the range of floats
  if (effort == Effort::fast) return;
  float least = INFINITY;
  for (const float part : {1.0f, 0.95f, 0.9f, 0.85f, 0.8f}) {
    const Block tried = nf4_under(x, largest * part);
    float lost = 0;
    for (int i = 0; i < 64; ++i) {
      const float off = x[i] - at(tried, i);
      lost += factors[i] * off * off;
    }
    if (lost < least) least = lost, block = tried;
  }
}

}  // namespace chaski
