#include "quant/encode/float_rows.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "quant/half.h"
#include "quant/rounding.h"

namespace chaski {

Bf16Row bf16_row(const float* x, int64_t n, std::byte* out) {
  Bf16Row row;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t half = bf16_of_f32(x[i]);
    std::memcpy(out + 2 * i, &half, sizeof half);
    row.changed += std::bit_cast<uint32_t>(x[i]) != uint32_t(half) << 16;
    row.finite = row.finite && (half & 0x7f80) != 0x7f80;
  }
  return row;
}

float f8_scale_of(const float* x, int64_t n) {
  constexpr int kLeast = -117, kMost = 119;  // 2^-9 and 448 times the scale are normal in bf16
  const float most = max_abs(x, int(n));
  if (!(most > 0)) return 1;
  int power;
  const bool above = std::frexp(most, &power) > 448.0f / 512;
  return std::ldexp(1.0f, std::clamp(power - 9 + above, kLeast, kMost));
}

F8Row f8_row(const float* x, int64_t n, float scale, std::byte* out) {
  F8Row row;
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t code = f8_of_f32(x[i] / scale);
    out[i] = std::byte(code);
    const float value = scale * f32_of_f8(code), error = value - x[i];
    row.squares += double(x[i]) * x[i], row.lost += double(error) * error;
    row.finite = row.finite && std::isfinite(x[i]);
  }
  return row;
}

}  // namespace chaski
