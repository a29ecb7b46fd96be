// GGUF IQ4_NL (blocks of 32, x = d * codebook[q]) and IQ4_XS (256 columns in 8 sub-blocks, x = d *
// (scale - 32) * codebook[q] with 6-bit scales): 4 bits with a fixed non-linear codebook.
#pragma once
#include "quant/entry.h"
#include "quant/gguf/q4_0.h"

namespace chaski {

constexpr int8_t kIq4Codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

// Column i of a run of 16 bytes.
constexpr int iq4_code(const uint8_t* q, int i) { return entry_of<kIq4Codebook>(nibble_of(q, i)); }

// 256 bytes of codes as in a q4_0 tile -> a panel's values.
template <class V>
inline __attribute__((always_inline)) void unpack_iq4(const uint8_t* q, Panel<V>& p) {
  unpack_nibbles_by(reinterpret_cast<const uint8_t*>(kIq4Codebook), q, p);
}

struct IQ4_NL {
  static constexpr Format kFormat = Format::iq4_nl;
  static constexpr std::string_view kName = "iq4_nl";
  static constexpr int kGguf = 20;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr bool kLooksUp = true;
  static constexpr uint32_t kTileLayout = 2;
  static constexpr DotKind kDot{.max = 255, .is_signed = true};
  struct Block {
    uint16_t d;
    uint8_t q[16];
  };
  struct Tile : TileNibbles {
    uint16_t d[16];
  };

  static constexpr float at(const Block& b, int i) { return f32_of_f16(b.d) * iq4_code(b.q, i); }
  // Searches for the scales of least squared error, weighted by the factors.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
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
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(iq4_code(b.q, i));
    p.d = f32_of_f16(b.d);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    unpack_iq4(t.q, p);
    p.d = V::load_f16(t.d);
  }
};

// Tile: per sub-block the 256 bytes of codes of a q4_0 tile; `low[s / 2][r]` and `high[s / 4][r]`
// hold 4 and 2 bits of the scales of two and four sub-blocks.
struct IQ4_XS {
  static constexpr Format kFormat = Format::iq4_xs;
  static constexpr std::string_view kName = "iq4_xs";
  static constexpr int kGguf = 23;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr bool kLooksUp = true;
  static constexpr DotKind kDot{.max = 255, .is_signed = true};
  struct Block {
    uint16_t d;
    uint16_t scale_high;  // two bits a sub-block
    uint8_t scale_low[4];
    uint8_t q[128];
  };
  struct Tile {
    uint8_t q[8][256];
    uint8_t low[4][16], high[2][16];
    uint16_t d[16];
  };

  static constexpr int scale(const Block& b, int s) {
    return ((b.scale_low[s / 2] >> 4 * (s % 2) & 15) | (b.scale_high >> 2 * s & 3) << 4) - 32;
  }
  static constexpr float at(const Block& b, int i) {
    return f32_of_f16(b.d) * scale(b, i / 32) * iq4_code(b.q + 16 * (i / 32), i % 32);
  }
  // Searches for the scales of least squared error, weighted by the factors.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    for (int s = 0; s < 8; ++s)
      for (int j = 0; j < 4; ++j) std::memcpy(t.q[s] + 64 * j + 4 * r, b.q + 16 * s + 4 * j, 4);
    for (int i = 0; i < 4; ++i) t.low[i][r] = b.scale_low[i];
    for (int i = 0; i < 2; ++i) t.high[i][r] = uint8_t(b.scale_high >> 8 * i);
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    for (int s = 0; s < 8; ++s)
      for (int j = 0; j < 4; ++j)
        __builtin_memcpy(b.q + 16 * s + 4 * j, t.q[s] + 64 * j + 4 * r, 4);
    for (int i = 0; i < 4; ++i) b.scale_low[i] = t.low[i][r];
    b.scale_high = uint16_t(t.high[0][r] | t.high[1][r] << 8);
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = uint8_t(iq4_code(b.q + 16 * sub, i));
    p.d = f32_of_f16(b.d) * scale(b, sub);
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    unpack_iq4(t.q[sub], p);
    const auto low =
        V::bit_and(V::shift_right(V::load_u8(t.low[sub / 2]), 4 * (sub % 2)), V::set1_i32(15));
    const auto high =
        V::bit_and(V::shift_right(V::load_u8(t.high[sub / 4]), 2 * (sub % 4)), V::set1_i32(3));
    const auto scale = V::add_i32(V::bit_or(low, V::shift_left(high, 4)), V::set1_i32(-32));
    p.d = V::mul(V::load_f16(t.d), V::to_float(scale));
  }
};
static_assert(sizeof(IQ4_NL::Block) == 18 && sizeof(IQ4_NL::Tile) == 16 * 18);
static_assert(sizeof(IQ4_XS::Block) == 136 && sizeof(IQ4_XS::Tile) == 16 * 136);

}  // namespace chaski
