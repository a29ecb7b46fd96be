// GGUF Q4_0: 4 bits, blocks of 32, f16 scale, x = d * (q - 8), 0 <= q <= 15, 4.5 bits per weight.
#pragma once
#include "quant/half.h"
#include "quant/nibbles.h"

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
    uint8_t q[16];
  };
  struct Tile : TileNibbles {
    uint16_t d[16];
  };

  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * (nibble_of(b.q, i) - 8);
  }
  // Searches for the f16 scale of least squared error.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  // Gives value i the nearest code under the block's scale.
  static void round(Block& block, int i, float x);
  static void put_code(Block& b, int i, int code) { put_nibble(b.q, i, code); }
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b.q, r);
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b.q);
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(nibble_of(b.q, i));
    p.d = f32_of_f16(b.d);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    t.unpack_codes(p);
    p.d = V::load_f16(t.d);
  }
};
static_assert(sizeof(Q4_0::Block) == 18 && sizeof(Q4_0::Tile) == 16 * 18);

}  // namespace chaski
