// f32, f16, bf16, f8: a block is one column, a tile the 16 rows of one column.
#pragma once
#include "quant/format.h"
#include "quant/half.h"

namespace chaski {

template <Format kId, class Bits, float (*kDecode)(Bits), Bits (*kEncode)(float)>
struct FloatFormat {
  static constexpr Format kFormat = kId;
  static constexpr int kBlock = 1;
  static constexpr bool kFloat = true;
  using Block = Bits;
  struct Tile {
    Bits rows[16];
  };
  static constexpr float at(const Block& block, int) { return kDecode(block); }
  static constexpr Block of(float x) { return kEncode(x); }  // nearest even
  static void put(const Block& block, int r, Tile& tile) { tile.rows[r] = block; }
  static constexpr Block get(const Tile& tile, int r) { return tile.rows[r]; }
};

constexpr float same_f32(float x) { return x; }

// load<V> loads 16 neighbouring values as the lanes of V.
struct F32 : FloatFormat<Format::f32, float, same_f32, same_f32> {
  static constexpr std::string_view kName = "f32";
  static constexpr int kGguf = 0;
  static void encode(const float* x, Block& block) { block = of(x[0]); }
  template <class V>
  [[gnu::always_inline]] static auto load(const Block* p) {
    return V::load(p);
  }
};
struct F16 : FloatFormat<Format::f16, uint16_t, f32_of_f16, f16_of_f32> {
  static constexpr std::string_view kName = "f16";
  static constexpr int kGguf = 1;
  static void encode(const float* x, Block& block) { block = of(x[0]); }
  template <class V>
  [[gnu::always_inline]] static auto load(const Block* p) {
    return V::load_f16(p);
  }
};
struct BF16 : FloatFormat<Format::bf16, uint16_t, f32_of_bf16, bf16_of_f32> {
  static constexpr std::string_view kName = "bf16";
  static constexpr int kGguf = 30;
  static void encode(const float* x, Block& block) { block = of(x[0]); }
  template <class V>
  [[gnu::always_inline]] static auto load(const Block* p) {
    return V::load_bf16(p);
  }
};
// e4m3, for keys and values, which need no scale. No encoder writes weights in it.
struct F8 : FloatFormat<Format::f8, uint8_t, f32_of_f8, f8_of_f32> {
  static constexpr std::string_view kName = "f8";
  static constexpr int kGguf = -1;
  template <class V>
  [[gnu::always_inline]] static auto load(const Block* p) {
    return V::load_f8(p);
  }
};

}  // namespace chaski
