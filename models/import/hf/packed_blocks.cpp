#include "models/import/hf/packed_blocks.h"

#include <bit>
#include <cmath>

namespace chaski {

namespace {

template <class Block>
bool with_minimum(const Block& b, Multiples& m) {
  const float d = f32_of_f16(b.d), least = f32_of_f16(b.m);
  const float whole = d == 0 ? 0 : std::nearbyint(least / d);
  if (!(std::fabs(whole) <= 96) || whole * d != least) return false;  // fits 8 bits
  m.scale = b.d;
  for (int& q : m.q) q += int(whole);
  return true;
}

}  // namespace

int Multiples::zero(int bits) const {
  const int top = (1 << bits) - 1, low = std::max(0, -least()), high = std::min(top, top - most());
  return low > high ? -1 : std::clamp((top + 1) / 2, low, high);
}

bool multiples_of(const Q4_0::Block& b, Multiples& m) {
  m.scale = b.d;
  for (int i = 0; i < 32; ++i) m.q[i] = nibble_of(b.q, i) - 8;
  return true;
}
bool multiples_of(const Q5_0::Block& b, Multiples& m) {
  m.scale = b.d;
  for (int i = 0; i < 32; ++i) m.q[i] = q5_at(b, i) - 16;
  return true;
}
bool multiples_of(const Q8::Block& b, Multiples& m) {
  m.scale = b.d;
  for (int i = 0; i < 32; ++i) m.q[i] = b.q[i];
  return true;
}
bool multiples_of(const Q4_1::Block& b, Multiples& m) {
  for (int i = 0; i < 32; ++i) m.q[i] = nibble_of(b.q, i);
  return with_minimum(b, m);
}
bool multiples_of(const Q5_1::Block& b, Multiples& m) {
  for (int i = 0; i < 32; ++i) m.q[i] = q5_at(b, i);
  return with_minimum(b, m);
}

bool has_image(Format format) {
  bool found = false;
  WithImage::with(format, [&](auto) { found = true; });
  return found;
}

Format narrowest(const TensorSource& t) {
  if (t.info.format == Format::f16 || t.info.format == Format::bf16) return t.info.format;
  bool half = true, brain = true;
  const auto same = [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  each_row_of_values(t, [&](int64_t, const std::vector<float>& values) {
    for (size_t i = 0; i < values.size() && (half || brain); ++i) {
      half = half && same(f32_of_f16(f16_of_f32(values[i])), values[i]);
      brain = brain && same(f32_of_bf16(bf16_of_f32(values[i])), values[i]);
    }
  });
  return half ? Format::f16 : brain ? Format::bf16 : Format::f32;
}

}  // namespace chaski
