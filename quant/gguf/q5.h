// GGUF Q5_0 (x = d * (q - 16)) and Q5_1 (x = d * q + m): 5 bits, blocks of 32; bit i of `high` is
// the fifth bit of column i.
#pragma once
#include "quant/gguf/q4_0.h"

namespace chaski {

template <class Block>
constexpr int q5_at(const Block& b, int i) {
  return nibble_of(b.q, i) | (b.high[i / 8] >> (i % 8) & 1) << 4;
}
template <class Block>
void put_q5(Block& b, int i, int code) {
  put_nibble(b.q, i, code & 15);
  b.high[i / 8] = uint8_t((b.high[i / 8] & ~(1 << i % 8)) | (code >> 4) << i % 8);
}

// Codes of 16 rows: nibbles as in a q4_0 tile, and bit g of byte 4r + k of `high` is the fifth bit
// of row r, column 4g + k.
struct TileFives : TileNibbles {
  uint8_t high[64];

  void put_codes(const auto& b, int r) {
    TileNibbles::put_codes(b.q, r);
    for (int k = 0; k < 4; ++k) {
      uint8_t fifth = 0;
      for (int g = 0; g < 8; ++g) fifth |= uint8_t((q5_at(b, 4 * g + k) >> 4) << g);
      high[4 * r + k] = fifth;
    }
  }
  constexpr void get_codes(int r, auto& b) const {
    TileNibbles::get_codes(r, b.q);
    for (int i = 0; i < 4; ++i) b.high[i] = 0;
    for (int i = 0; i < 32; ++i)
      b.high[i / 8] |= uint8_t((high[4 * r + i % 4] >> (i / 4) & 1) << i % 8);
  }
  template <class V>
  inline __attribute__((always_inline)) void unpack_codes(Panel<V>& p) const {
    const auto fifth = V::load_bytes(high);
    TileNibbles::unpack_codes(
        p, [&](int g, auto low) { return V::or_bytes(low, V::move_bits(fifth, g, 4, 1)); });
  }
};

struct Q5_0 {
  static constexpr Format kFormat = Format::q5_0;
  static constexpr std::string_view kName = "q5_0";
  static constexpr int kGguf = 6;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr uint32_t kTileLayout = 2;
  static constexpr DotKind kDot{.offset = 16, .max = 31};
  struct Block {
    uint16_t d;
    uint8_t high[4];
    uint8_t q[16];
  };
  struct Tile : TileFives {
    uint16_t d[16];
  };

  static constexpr float at(const Block& b, int i) { return f32_of_f16(b.d) * (q5_at(b, i) - 16); }
  // Like Q4_0's.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void round(Block& block, int i, float x);
  static void put_code(Block& b, int i, int code) { put_q5(b, i, code); }
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b, r);
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b);
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(q5_at(b, i));
    p.d = f32_of_f16(b.d);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    t.unpack_codes(p);
    p.d = V::load_f16(t.d);
  }
};

struct Q5_1 {
  static constexpr Format kFormat = Format::q5_1;
  static constexpr std::string_view kName = "q5_1";
  static constexpr int kGguf = 7;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr uint32_t kTileLayout = 2;
  static constexpr DotKind kDot{.max = 31, .mins = true};
  struct Block {
    uint16_t d, m;
    uint8_t high[4];
    uint8_t q[16];
  };
  struct Tile : TileFives {
    uint16_t d[16], m[16];
  };

  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * q5_at(b, i) + f32_of_f16(b.m);
  }
  // Like Q4_1's.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put_code(Block& b, int i, int code) { put_q5(b, i, code); }
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b, r);
    t.d[r] = b.d, t.m[r] = b.m;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b);
    b.d = t.d[r], b.m = t.m[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(q5_at(b, i));
    p.d = f32_of_f16(b.d), p.m = f32_of_f16(b.m);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    t.unpack_codes(p);
    p.d = V::load_f16(t.d), p.m = V::load_f16(t.m);
  }
};
static_assert(sizeof(Q5_0::Block) == 22 && sizeof(Q5_0::Tile) == 16 * 22);
static_assert(sizeof(Q5_1::Block) == 24 && sizeof(Q5_1::Tile) == 16 * 24);

}  // namespace chaski
