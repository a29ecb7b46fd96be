// Floats of few bits with an f32 scale for 64 columns, x = d * code:
//   nf4  16 quantiles of the normal distribution, Dettmers et al. 2023, "QLoRA": 4.5 bits a weight
//   fp4  a sign, two bits of exponent, one of mantissa, as bitsandbytes counts them: 4.5 bits
//   f8s  e4m3 (half.h): 8.5 bits
// Model folders have such scales per block of a multiple of 64 columns, per row or per tensor.
//
// These codes cannot be expressed as 8-bit integers, so activations are f32. A chain of fma sums
// the codes of 32 columns, and the scale multiplies the result (ggml-like-tensor/ops/matmul.h).
//
// Tile: a row's codes are 16 bytes apart, so that 16 neighbouring bytes are a column of the tile.
// Then come the scales.
#pragma once
#include "quant/entry.h"
#include "quant/format.h"
#include "quant/half.h"

namespace chaski {

// The common part. A format F of this kind has Block::d, code() of a block, code_at() of a tile,
// and column<V>(), a column of codes as lanes.
template <class F>
struct ScaledFloats {
  static constexpr int kGguf = -1;
  static constexpr int kBlock = 64;
  static constexpr bool kFloat = true;
  template <int kBytes>
  struct BlockOf {
    float d;
    uint8_t q[kBytes];
  };
  template <int kBytes>
  struct TileOf {
    uint8_t q[kBytes][16];
    float d[16];
  };

  static constexpr float at(const auto& b, int i) { return b.d * F::code(b, i); }
  static void put(const auto& b, int r, auto& t) {
    for (size_t i = 0; i < sizeof b.q; ++i) t.q[i][r] = b.q[i];
    t.d[r] = b.d;
  }
  static constexpr auto get(const auto& t, int r) {
    typename F::Block b{};
    for (size_t i = 0; i < sizeof b.q; ++i) b.q[i] = t.q[i][r];
    b.d = t.d[r];
    return b;
  }
  // The same for a tile.
  static constexpr float tile_at(const auto& t, int r, int i) {
    return t.d[r] * F::code_at(t, r, i);
  }
  template <class V>
  [[gnu::always_inline]] static auto scale(const auto& t) {
    return V::load(t.d);
  }
};

// Byte 16 s + j of a block holds columns 32 s + j (low nibble) and 32 s + 16 + j.
template <class F>
struct CodebookFloats : ScaledFloats<F> {
  using Block = typename ScaledFloats<F>::template BlockOf<32>;
  using Tile = typename ScaledFloats<F>::template TileOf<32>;

  static constexpr int nibble(const Block& b, int i) {
    return b.q[16 * (i / 32) + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15;
  }
  static constexpr void set_nibble(Block& b, int i, int code) {  // on a zeroed block
    b.q[16 * (i / 32) + i % 16] |= uint8_t(code << (i % 32 < 16 ? 0 : 4));
  }
  static constexpr float entry(int code) { return entry_of<F::kCodebook>(code); }
  static constexpr float code(const Block& b, int i) { return entry(nibble(b, i)); }
  static constexpr float code_at(const Tile& t, int r, int i) {
    return entry(t.q[16 * (i / 32) + i % 16][r] >> (i % 32 < 16 ? 0 : 4) & 15);
  }
  template <class V>
  [[gnu::always_inline]] static auto column(const Tile* t, int i) {
    const auto pair = V::load_u8(t->q[16 * (i / 32) + i % 16]);
    return V::pick16(F::kCodebook, i % 32 < 16 ? pair : V::shift_right(pair, 4));
  }
};

struct NF4 : CodebookFloats<NF4> {
  static constexpr Format kFormat = Format::nf4;
  static constexpr std::string_view kName = "nf4";
  alignas(64) static constexpr float kCodebook[16] = {-1.0f,
                                                      -0.6961928009986877f,
                                                      -0.5250730514526367f,
                                                      -0.39491748809814453f,
                                                      -0.28444138169288635f,
                                                      -0.18477343022823334f,
                                                      -0.09105003625154495f,
                                                      0.0f,
                                                      0.07958029955625534f,
                                                      0.16093020141124725f,
                                                      0.24611230194568634f,
                                                      0.33791524171829224f,
                                                      0.44070982933044434f,
                                                      0.5626170039176941f,
                                                      0.7229568362236023f,
                                                      1.0f};

  // Searches for the scale of least squared error, weighted by the factors: the largest value
  // itself, as in bitsandbytes, or up to a fifth less.
  static void encode(const float* x, const float* factors, Effort effort, Block& block);
};

struct FP4 : CodebookFloats<FP4> {
  static constexpr Format kFormat = Format::fp4;
  static constexpr std::string_view kName = "fp4";
  alignas(64) static constexpr float kCodebook[16] = {
      0.0f,  0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
      -0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};
};

struct F8S : ScaledFloats<F8S> {
  static constexpr Format kFormat = Format::f8s;
  static constexpr std::string_view kName = "f8s";
  using Block = BlockOf<64>;
  using Tile = TileOf<64>;

  static constexpr float code(const Block& b, int i) { return f32_of_f8(b.q[i]); }
  static constexpr float code_at(const Tile& t, int r, int i) { return f32_of_f8(t.q[i][r]); }
  template <class V>
  [[gnu::always_inline]] static auto column(const Tile* t, int i) {
    return V::load_f8(t->q[i]);
  }
  // For random codes. Those that are NaN become zeros.
  static void set_scale(Block& b, float d) {
    for (uint8_t& q : b.q) q = (q & 127) == 127 ? 0 : q;
    b.d = d;
  }
};
static_assert(sizeof(NF4::Block) == 36 && sizeof(NF4::Tile) == 16 * 36);
static_assert(sizeof(F8S::Block) == 68 && sizeof(F8S::Tile) == 16 * 68);

}  // namespace chaski
