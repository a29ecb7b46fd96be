// GGUF Q4_0: 4 bits, blocks of 32, f16 scale, x = d * (q - 8), 0 <= q <= 15, 4.5 bits per weight.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"
#include "quant/panel.h"

namespace chaski {

// Codes of 32 columns in 16 bytes, as GGUF packs them: low nibbles columns 0..15, high nibbles
// 16..31.
constexpr int nibble_of(const uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

inline void put_nibble(uint8_t* q, int i, int code) {
  uint8_t& both = q[i % 16];
  both = i < 16 ? uint8_t((both & 0xf0) | code) : uint8_t((both & 15) | code << 4);
}

// The same for 16 rows: byte 64j + 4r + k holds row r, columns 4j + k (low nibble) and 16 + 4j + k
// (high nibble). The 32-bit words are at the same time the A fragments of an integer tensor-core
// product.
struct TileNibbles {
  uint8_t q[256];

  void put_codes(const uint8_t* row, int r) {
    for (int j = 0; j < 4; ++j) std::memcpy(q + 64 * j + 4 * r, row + 4 * j, 4);
  }
  constexpr void get_codes(int r, uint8_t* row) const {
    for (int j = 0; j < 4; ++j) __builtin_memcpy(row + 4 * j, q + 64 * j + 4 * r, 4);
  }
  template <class V>
  inline __attribute__((always_inline)) void unpack_codes(Panel<V>& p) const {
    for (int j = 0; j < 4; ++j) {
      const auto x = V::load_bytes(q + 64 * j);
      p.w[j] = V::low_nibbles(x);
      p.w[j + 4] = V::high_nibbles(x);
    }
  }
};

// Codes of such a tile -> a panel's values, by a table.
template <class V>
inline __attribute__((always_inline)) void unpack_nibbles_by(const uint8_t* codebook,
                                                             const uint8_t* q, Panel<V>& p) {
  for (int j = 0; j < 4; ++j) {
    const auto x = V::load_bytes(q + 64 * j);
    p.w[j] = V::lookup_low(codebook, x);
    p.w[j + 4] = V::lookup_high(codebook, x);
  }
}

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
  // With the f16 scale of least squared error.
  static void encode(const float* x, const float* factors, Block& block);
  // Gives value i the nearest code, under the scale that the block has.
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
