// The layout of formats whose blocks are kept as they come: 16 rows' blocks side by side, unpacked
// row by row in scalar code. Correct for every format and fast for none: a format that matters gets
// its own interleaved Tile (see q4.h).
#pragma once
#include <cstring>

#include "quant/panel.h"

namespace chaski {

template <class Self, class BlockType>
struct RowTiled {
  using Block = BlockType;
  struct Tile {
    Block rows[16];
  };
  static void put(const Block& block, int r, Tile& tile) { tile.rows[r] = block; }
  static constexpr Block get(const Tile& tile, int r) { return tile.rows[r]; }

  template <class V>
  static void unpack(const Tile& tile, int sub, Panel<V>& panel) {
    alignas(64) uint8_t w[8][64];
    alignas(64) float d[16], m[16];
    alignas(64) int32_t s[2][16], mins[2][16];
    for (int r = 0; r < 16; ++r) {
      RowPanel row;
      Self::row_panel(tile.rows[r], sub, row);
      for (int g = 0; g < 8; ++g) std::memcpy(&w[g][4 * r], row.q + 4 * g, 4);
      d[r] = row.d, m[r] = row.m;
      for (int h = 0; h < 2; ++h) s[h][r] = row.s[h], mins[h][r] = row.mins[h];
    }
    for (int g = 0; g < 8; ++g) panel.w[g] = V::load_bytes(w[g]);
    panel.d = V::load(d), panel.m = V::load(m);
    for (int h = 0; h < 2; ++h)
      panel.s[h] = V::load_i32(s[h]), panel.mins[h] = V::load_i32(mins[h]);
  }
};

}  // namespace chaski
