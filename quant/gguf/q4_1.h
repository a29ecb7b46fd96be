// GGUF Q4_1: 4 bits with a minimum, blocks of 32, x = d * q + m.
//
// Tile: the 256 bytes of codes of a q4_0 tile, then the scales and minima.
#pragma once
#include "quant/gguf/q4_0.h"

namespace chaski {

struct Q4_1 {
  static constexpr Format kFormat = Format::q4_1;
  static constexpr std::string_view kName = "q4_1";
  static constexpr int kGguf = 3;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr uint32_t kTileLayout = 2;
  static constexpr DotKind kDot{.max = 15, .mins = true};
  struct Block {
    uint16_t d, m;
    uint8_t q[16];
  };
  struct Tile : TileNibbles {
    uint16_t d[16], m[16];
  };

  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * nibble_of(b.q, i) + f32_of_f16(b.m);
  }
  // Searches for the scale and minimum of least squared error.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put_code(Block& b, int i, int code) { put_nibble(b.q, i, code); }
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b.q, r);
    t.d[r] = b.d, t.m[r] = b.m;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b.q);
    b.d = t.d[r], b.m = t.m[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(nibble_of(b.q, i));
    p.d = f32_of_f16(b.d), p.m = f32_of_f16(b.m);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    t.unpack_codes(p);
    p.d = V::load_f16(t.d), p.m = V::load_f16(t.m);
  }
};
static_assert(sizeof(Q4_1::Block) == 20 && sizeof(Q4_1::Tile) == 16 * 20);

}  // namespace chaski
