// 4-bit floats (e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives) under a scale.
//   MXFP4  blocks of 32, the scale is a power of two, x = 2^(e - 127) * v: 4.25 bits per weight.
//   OCP
//          Microscaling Formats 1.0 (2023). e = 255 is NaN there; it decodes to infinity here.
//   NVFP4  64 columns in 4 sub-blocks of 16, the scale is an e4m3 whose sign is ignored (half.h):
//          4.5 bits per weight. Its NaN is 0 in ggml; no encoder writes it.
//          NVFP4S also has an f32 scale per row; files have one for a whole tensor.
//
// Kernels use twice the value of a code, an integer, plus an offset of 16.
//
// Tile: per 32 columns the 256 bytes of codes of a q4_0 tile, then the scales.
#pragma once
#include "quant/entry.h"
#include "quant/half.h"
#include "quant/nibbles.h"

namespace chaski {

constexpr uint8_t kFp4Codebook[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

struct MXFP4 {
  static constexpr Format kFormat = Format::mxfp4;
  static constexpr std::string_view kName = "mxfp4";
  static constexpr int kGguf = 39;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr bool kInTwoSteps = true;
  static constexpr bool kLooksUp = true;
  static constexpr DotKind kDot{.offset = 16, .max = 31};
  struct Block {
    uint8_t e;
    uint8_t q[16];
  };
  struct Tile : TileNibbles {
    uint8_t e[16];
  };

  // The scale of doubled values. e = 0 is the power below the least normal float.
  static constexpr float scale(uint8_t e) {
    return (e ? std::bit_cast<float>(uint32_t(e) << 23) : 0x1p-127f) * 0.5f;
  }
  static constexpr float at(const Block& b, int i) {
    return scale(b.e) * (entry_of<kFp4Codebook>(nibble_of(b.q, i)) - 16);
  }
  // Tries two exponents: one at which the largest value is below 8, and the next, at which it is
  // below
  // 4. Takes nearest codes, and the exponent of least squared error.
  static void encode(const float* x, Block& block);
  static void set_scale(Block& b, float d);  // of doubled values; rounded to a power of two
  static void put(const Block& b, int r, Tile& t) {
    t.put_codes(b.q, r);
    t.e[r] = b.e;
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b;
    t.get_codes(r, b.q);
    b.e = t.e[r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = kFp4Codebook[nibble_of(b.q, i)];
    p.d = scale(b.e);
  }
  template <class V>
  static void unpack(const Tile& t, int, Panel<V>& p) {
    unpack_nibbles_by(kFp4Codebook, t.q, p);
    const auto e = V::load_u8(t.e);
    const auto power = V::where_less(V::to_float(e), V::set1(0.5f), V::set1(0x1p-127f),
                                     V::from_bits(V::shift_left(e, 23)));
    p.d = V::mul(power, V::set1(0.5f));
  }
};
static_assert(sizeof(MXFP4::Block) == 17 && sizeof(MXFP4::Tile) == 16 * 17);

struct NVFP4 {
  static constexpr Format kFormat = Format::nvfp4;
  static constexpr std::string_view kName = "nvfp4";
  static constexpr int kGguf = 40;
  static constexpr int kBlock = 64;
  static constexpr bool kFloat = false;
  static constexpr bool kInTwoSteps = true;
  static constexpr bool kLooksUp = true;
  static constexpr DotKind kDot{.offset = 16, .max = 31, .apart = true};
  struct Block {
    uint8_t scale[4];
    uint8_t q[32];  // per sub-block 8 bytes: low nibbles columns 0..7, high nibbles 8..15
  };
  struct Tile {
    uint8_t q[2][256];
    uint8_t scale[4][16];
  };

  static constexpr int code(const Block& b, int i) {
    const uint8_t* q = b.q + 8 * (i / 16);
    return i % 16 < 8 ? q[i % 16] & 15 : q[i % 16 - 8] >> 4;
  }
  static constexpr float scale(const Block& b, int s) {
    return f32_of_f8(b.scale[s] & 0x7f) * 0.5f;
  }
  static constexpr float at(const Block& b, int i) {
    return scale(b, i / 16) * (entry_of<kFp4Codebook>(code(b, i)) - 16);
  }
  static void set_scale(Block& b, float d);  // of doubled values; rounded
  static void put(const Block& b, int r, Tile& t) {
    for (int i = 0; i < 64; ++i) {
      uint8_t& pair = t.q[i / 32][64 * (i % 16 / 4) + 4 * r + i % 4];
      pair = uint8_t(i % 32 < 16 ? code(b, i) : pair | code(b, i) << 4);
    }
    for (int s = 0; s < 4; ++s) t.scale[s][r] = b.scale[s];
  }
  static constexpr Block get(const Tile& t, int r) {
    Block b{};
    for (int i = 0; i < 64; ++i) {
      const int pair = t.q[i / 32][64 * (i % 16 / 4) + 4 * r + i % 4];
      const int code = i % 32 < 16 ? pair & 15 : pair >> 4;
      b.q[8 * (i / 16) + i % 8] |= uint8_t(code << (i % 16 < 8 ? 0 : 4));
    }
    for (int s = 0; s < 4; ++s) b.scale[s] = t.scale[s][r];
    return b;
  }
  static constexpr void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = kFp4Codebook[code(b, 32 * sub + i)];
    p.d = scale(b, 2 * sub), p.m = scale(b, 2 * sub + 1);
  }
  template <class V>
  static void unpack(const Tile& t, int sub, Panel<V>& p) {
    unpack_nibbles_by(kFp4Codebook, t.q[sub], p);
    const auto half = V::set1(0.5f);
    p.d = V::mul(V::abs(V::load_f8(t.scale[2 * sub])), half);
    p.m = V::mul(V::abs(V::load_f8(t.scale[2 * sub + 1])), half);
  }
};

struct NVFP4S {
  static constexpr Format kFormat = Format::nvfp4s;
  static constexpr std::string_view kName = "nvfp4s";
  static constexpr int kGguf = -1;
  static constexpr int kBlock = 64;
  static constexpr bool kFloat = false;
  static constexpr bool kInTwoSteps = true;
  static constexpr bool kLooksUp = true;
  static constexpr DotKind kDot = NVFP4::kDot;
  using RowHeader = float;  // the scale
  using Block = NVFP4::Block;
  using Tile = NVFP4::Tile;

  static constexpr float at(RowHeader scale, const Block& b, int i) {
    return NVFP4::scale(b, i / 16) * scale * (entry_of<kFp4Codebook>(NVFP4::code(b, i)) - 16);
  }
  // For a row of random codes whose blocks had set_scale(1): their root mean square is 8.2.
  static RowHeader header_of_random(float rms) { return rms / 8.2f; }
  static void set_scale(Block& b, float d) { NVFP4::set_scale(b, d); }
  static void put(const Block& b, int r, Tile& t) { NVFP4::put(b, r, t); }
  static constexpr Block get(const Tile& t, int r) { return NVFP4::get(t, r); }
  static constexpr void row_panel(RowHeader scale, const Block& b, int sub, RowPanel& p) {
    NVFP4::row_panel(b, sub, p);
    p.d *= scale, p.m *= scale;
  }
  template <class V>
  static void unpack(const RowHeader* scales, const Tile& t, int sub, Panel<V>& p) {
    NVFP4::unpack(t, sub, p);
    const auto scale = V::load(scales);
    p.d = V::mul(p.d, scale), p.m = V::mul(p.m, scale);
  }
};
static_assert(sizeof(NVFP4::Block) == 36 && sizeof(NVFP4::Tile) == 16 * 36);

}  // namespace chaski
