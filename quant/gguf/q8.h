// 8 bits, blocks of 32: x = d * q, -128 <= q <= 127. q8 has an f16 scale (GGUF's Q8_0, 8.5 bits per
// weight), q8f an f32 scale (llama2.c, 9 bits per weight).
//
// Tile: byte 64g + 4r + k holds row r, column 4g + k.
#pragma once
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"
#include "quant/panel.h"

namespace chaski {

template <class Scale>
struct Q8Block {
  Scale d;
  int8_t q[32];
};

template <class Scale>
struct Q8Tile {
  int8_t q[512];
  Scale d[16];
};

constexpr float scale_f32(float d) { return d; }
constexpr float scale_f32(uint16_t d) { return f32_of_f16(d); }

template <class Scale>
struct Q8Format {
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.offset = 0, .max = 255, .is_signed = true};
  using Block = Q8Block<Scale>;
  using Tile = Q8Tile<Scale>;

  static constexpr float at(const Block& b, int i) { return scale_f32(b.d) * b.q[i]; }
  // d = max |x| / 127, nearest
  static void encode(const float* x, Block& block);
  static void put(const Block& b, int r, Tile& t) {
    for (int g = 0; g < 8; ++g) std::memcpy(t.q + 64 * g + 4 * r, b.q + 4 * g, 4);
    t.d[r] = b.d;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    for (int g = 0; g < 8; ++g) __builtin_memcpy(b.q + 4 * g, t.q + 64 * g + 4 * r, 4);
    b.d = t.d[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    __builtin_memcpy(p.q, b.q, 32);
    p.d = scale_f32(b.d);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    for (int g = 0; g < 8; ++g) p.w[g] = V::load_bytes(t.q + 64 * g);
    if constexpr (sizeof(Scale) == 2)
      p.d = V::load_f16(t.d);
    else
      p.d = V::load(t.d);
  }
};

struct Q8 : Q8Format<uint16_t> {
  static constexpr Format kFormat = Format::q8;
  static constexpr std::string_view kName = "q8";
  static constexpr int kGguf = 8;
};
struct Q8F : Q8Format<float> {
  static constexpr Format kFormat = Format::q8f;
  static constexpr std::string_view kName = "q8f";
  static constexpr int kGguf = -1;
};
static_assert(sizeof(Q8::Block) == 34 && sizeof(Q8::Tile) == 16 * 34);
static_assert(sizeof(Q8F::Block) == 36 && sizeof(Q8F::Tile) == 16 * 36);

}  // namespace chaski
