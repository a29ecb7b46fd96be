// Intel's matrix tiles (AMX) for products of bytes. Everything else is that of AVX-512.
#pragma once
#include "ggml-like-tensor/cpu/lanes_avx512.h"
#include "ggml-like-tensor/cpu/tiles.h"

namespace chaski {
namespace {

struct AmxLanes : Avx512Lanes<true, true> {
  static constexpr const char* kName = "amx";
};

// In assembly, because gcc 12 drops stores to memory that its own intrinsics read.
struct AmxTiles {
  // Intel's manual, volume 1, 18.3: palette 1.
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  static void configure(int columns) {
    Config c;
    for (int t = 0; t < 8; ++t) {
      c.rows[t] = uint8_t(t < 6 ? 16 : columns / 4);
      c.row_bytes[t] = uint16_t(t == 4 || t == 5 ? columns : 64);
    }
    asm volatile("ldtilecfg %0" : : "m"(c));
  }
  static void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int t>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  template <int t>
  static void load(const std::byte* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(t), "r"(from), "r"(stride) : "memory");
  }
  template <int sum, int acts, int panel>
  static void multiply() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(acts), "i"(panel));
  }
  template <int t>
  static void store(std::byte* to) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(t), "r"(to), "r"(int64_t{64}) : "memory");
  }
};

}  // namespace
}  // namespace chaski
