// The formats that keys and values can be kept in, and what a page has to know of each besides
// what quant/ says of it:
//
//   kRotated        keys are kept rotated (ops/hadamard.h)
// of blocks:
//   encode(x, n, b) n <= 32 values to a block, zeros behind
//   kChannelsAByte  how many channels' codes a byte of the values holds: channel c of 32 in the low
//                   bits, c + 16 above
//   value(byte, c)  the code of channel c in such a byte, kOffset taken off
#pragma once
#include <array>

#include "quant/floats.h"
#include "quant/gguf/q4_0.h"
#include "quant/gguf/q8.h"

namespace chaski {

using KvFormats = FormatList<F32, F16, F8, Q8, Q4_0>;

template <class F>
struct PageOf {
  static_assert(F::kFloat, "a format of blocks says how its pages are written");
  static constexpr bool kRotated = false;
};

// d rounded to f16, the codes as for the activations of a matmul.
template <>
struct PageOf<Q8> {
  static constexpr bool kRotated = false;
  static constexpr int kChannelsAByte = 1, kOffset = 0;
  static void encode(const float* x, int n, Q8::Block& b);
  static constexpr int value(uint8_t byte, int) { return int8_t(byte); }
};

// 16 levels over +- the largest size, which loses half a step at either end. The scale is not
// negative: the kernel that weighs values multiplies it into unsigned weights (cpu/values.h).
template <>
struct PageOf<Q4_0> {
  static constexpr bool kRotated = true;
  static constexpr int kChannelsAByte = 2, kOffset = 8;
  static void encode(const float* x, int n, Q4_0::Block& b);
  static constexpr int value(uint8_t byte, int c) { return (c < 16 ? byte & 15 : byte >> 4) - 8; }
};

// As --kv names them.
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
