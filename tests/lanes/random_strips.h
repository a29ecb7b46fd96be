// Strips and activations of bytes without a pattern, for the tests of lanes.
#pragma once
#include <cstring>
#include <vector>

#include "ggml-like-tensor/base/processor.h"
#include "ggml-like-tensor/cpu/strip.h"
#include "tests/kit/doctest.h"

namespace chaski {

// Numbers without a pattern (Numerical Recipes' generator).
struct Bytes {
  uint32_t state = 1;
  uint8_t next() {
    state = state * 1664525u + 1013904223u;
    return uint8_t(state >> 24);
  }
  // Scales of these bytes are finite: the mask clears a bit of the exponents.
  void fill(void* to, size_t size, uint8_t mask = 0xbf) {
    for (size_t i = 0; i < size; ++i) static_cast<uint8_t*>(to)[i] = next() & mask;
  }
  void fill(Act& a) {
    for (int8_t& q : a.q) q = int8_t(next() % 255 - 127);
    a.d = .01f;
    a.set_sums();
  }
};

// Whether this machine cannot run lanes of AVX2; says so.
inline bool without_avx2() {
  if (Processor().avx2()) return false;
  MESSAGE("SKIPPED: this machine has no AVX2");
  return true;
}

}  // namespace chaski
