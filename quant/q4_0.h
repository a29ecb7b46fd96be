// GGUF Q4_0: 4 bits, blocks of 32, f16 scale, x = d * (q - 8), 0 <= q <= 15, 4.5 bits per weight.
//
// Tile: byte 64j + 4r + k holds row r, columns 4j + k (low nibble) and 16 + 4j + k (high nibble).
// The 32-bit words are at the same time the A fragments of an integer tensor-core product.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"
#include "quant/panel.h"

namespace chaski {

struct Q4_0 {
  static constexpr Format kFormat = Format::q4_0;
  static constexpr std::string_view kName = "q4_0";
  static constexpr int kGguf = 2;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.offset = 8, .max = 15};
  struct Block {
    uint16_t d;
    uint8_t q[16];  // low nibbles: columns 0..15, high nibbles: 16..31
  };
  struct Tile {
    uint8_t q[256];
    uint16_t d[16];
  };

  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * ((i < 16 ? b.q[i] & 15 : b.q[i - 16] >> 4) - 8);
  }
  // The f16 scale of least squared error: codes for 32 candidates round max / -8 and max / 8, each
  // with the scale <x, q> / <q, q> that fits them best, then two more rounds from the best (Lloyd
  // 1982 with a fixed codebook).
  static void encode(const float* x, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    for (int j = 0; j < 4; ++j) std::memcpy(t.q + 64 * j + 4 * r, b.q + 4 * j, 4);
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    for (int j = 0; j < 4; ++j) __builtin_memcpy(b.q + 4 * j, t.q + 64 * j + 4 * r, 4);
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 16; ++i) p.q[i] = b.q[i] & 15, p.q[16 + i] = b.q[i] >> 4;
    p.d = f32_of_f16(b.d);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(t.q + 64 * j);
      p.w[j] = V::low_nibbles(x);
      p.w[j + 4] = V::high_nibbles(x);
    }
    p.d = V::load_f16(t.d);
  }
};
static_assert(sizeof(Q4_0::Block) == 18 && sizeof(Q4_0::Tile) == 16 * 18);

}  // namespace chaski
