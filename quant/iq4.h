// GGUF IQ4_NL (blocks of 32, x = d * codebook[q]) and IQ4_XS (256 columns in 8 sub-blocks, x = d * (scale - 32) * codebook[q]
// with 6-bit scales): 4 bits with a fixed non-linear codebook.
#pragma once
#include "quant/format.h"
#include "quant/half.h"
#include "quant/row_tile.h"

namespace chaski {

constexpr int8_t kIq4Codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NLBlock {
  uint16_t d;
  uint8_t q[16];
};
struct IQ4_XSBlock {
  uint16_t d;
  uint16_t scale_high;  // two bits a sub-block
  uint8_t scale_low[4];
  uint8_t q[128];
};

// Column i of a run of 16 bytes: low nibbles first.
inline int iq4_code(const uint8_t* q, int i) { return kIq4Codebook[i < 16 ? q[i] & 15 : q[i - 16] >> 4]; }

struct IQ4_NL : RowTiled<IQ4_NL, IQ4_NLBlock> {
  static constexpr Format kFormat = Format::iq4_nl;
  static constexpr std::string_view kName = "iq4_nl";
  static constexpr int kGguf = 20;
  static constexpr int kBlock = 32;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 255, .is_signed = true};

  static float at(const Block& b, int i) { return f32_of_f16(b.d) * iq4_code(b.q, i); }
  static void row_panel(const Block& b, int, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = iq4_code(b.q, i);
    p.d = f32_of_f16(b.d);
  }
};

struct IQ4_XS : RowTiled<IQ4_XS, IQ4_XSBlock> {
  static constexpr Format kFormat = Format::iq4_xs;
  static constexpr std::string_view kName = "iq4_xs";
  static constexpr int kGguf = 23;
  static constexpr int kBlock = 256;
  static constexpr bool kFloat = false;
  static constexpr DotKind kDot{.max = 255, .is_signed = true};

  static int scale(const Block& b, int s) {
    return ((b.scale_low[s / 2] >> 4 * (s % 2) & 15) | (b.scale_high >> 2 * s & 3) << 4) - 32;
  }
  static float at(const Block& b, int i) { return f32_of_f16(b.d) * scale(b, i / 32) * iq4_code(b.q + 16 * (i / 32), i % 32); }
  static void row_panel(const Block& b, int sub, RowPanel& p) {
    for (int i = 0; i < 32; ++i) p.q[i] = iq4_code(b.q + 16 * sub, i);
    p.d = f32_of_f16(b.d) * scale(b, sub);
  }
};
static_assert(sizeof(IQ4_NLBlock) == 18 && sizeof(IQ4_XSBlock) == 136);

}  // namespace chaski
