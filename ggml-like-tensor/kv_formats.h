// The formats of keys and values, and what a page needs to know of each format in addition to
// quant/:
//
//   kCentered       keys are stored minus the constant of their channel (ops/kv_write.h)
//   kRotation       channels of a key that are rotated together (ops/hadamard.h), 0 for none;
//                   such keys are stored divided by the scale of their channel (ops/kv_write.h)
//   kValueRotation  the same of a value; attention rotates its result back
// for formats of blocks also:
//   encode(x, n, b) encodes n <= 32 channels into a block; the remaining channels are zero
//   kChannelsAByte  channels in a byte of the values: channel c of 32 in the low bits, channel
//                   c + 16 in the high bits
//   value(byte, c)  the code of channel c in such a byte, minus kOffset
#pragma once
#include <array>

#include "quant/floats.h"
#include "quant/gguf/q4_0.h"
#include "quant/gguf/q8.h"

namespace chaski {

constexpr int kWholeHead = 1 << 16;  // the largest power of two that divides a head

using KvFormats = FormatList<F32, F16, F8, Q8, Q4_0>;

template <class F>
struct PageOf {
  static_assert(F::kFloat, "a format of blocks needs its own PageOf");
  static constexpr bool kCentered = F::kFormat == Format::f8;
  static constexpr int kRotation = 0, kValueRotation = 0;
};

// d is rounded to f16; the codes are those of a matmul's activations. 32 channels are a warp of a
// device. Rotating a whole head gains nothing here, once channels are scaled.
template <>
struct PageOf<Q8> {
  static constexpr bool kCentered = true;
  static constexpr int kRotation = 32, kValueRotation = 0, kChannelsAByte = 1, kOffset = 0;
  static void encode(const float* x, int n, Q8::Block& b);
  static constexpr int value(uint8_t byte, int) { return int8_t(byte); }
};

// 16 levels, with the scale of a few that loses least. Scales are not negative, because the kernel
// that weights values multiplies them into unsigned weights (cpu/values.h).
template <>
struct PageOf<Q4_0> {
  static constexpr bool kCentered = true;
  static constexpr int kRotation = kWholeHead, kValueRotation = kWholeHead;
  static constexpr int kChannelsAByte = 2, kOffset = 8;
  static void encode(const float* x, int n, Q4_0::Block& b);
  static constexpr int value(uint8_t byte, int c) { return (c < 16 ? byte & 15 : byte >> 4) - 8; }
};

// The names of --kv.
struct KvType {
  const char* name;
  Format format;
};
template <class... F>
constexpr std::array<KvType, sizeof...(F)> kv_types(FormatList<F...>) {
  return {{{F::kName.data(), F::kFormat}...}};
}
constexpr auto kKvTypes = kv_types(KvFormats{});

}  // namespace chaski
