// Where keys and values live: pages of 16 positions from one pool.
//
//   page       layers x (heads x K tile, heads x V rows)
//   K tile     a strip of 16 rows in tile layout whose rows are the positions: scoring a page is the matmul of a strip with the
//              queries, by the same code as weights (f32, f16: head_dim columns, q8: head_dim rounded up to 32)
//   V rows     16 rows of v_cols() channels, a lane is a channel: f32 or f16 [16][v_cols], or q8: int8[16][v_cols], f16
//              scale[16][v_cols / 32]
// Kernels of every instruction set use these functions: always_inline, so that none leaves a copy with its flags for the linker.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace chaski {

constexpr int kPage = 16;  // positions
constexpr int kMaxHeadDim = 512;

struct KvLayout {
  Format format = Format::f16;  // f32 | f16 | q8
  int layers = 0, heads = 0, head_dim = 0;

  [[gnu::always_inline]] int k_cols() const { return format != Format::q8 ? head_dim : (head_dim + 31) / 32 * 32; }
  [[gnu::always_inline]] int v_cols() const { return format != Format::q8 ? (head_dim + 15) / 16 * 16 : (head_dim + 31) / 32 * 32; }
  [[gnu::always_inline]] size_t k_bytes() const { return strip_bytes(format, k_cols()); }
  [[gnu::always_inline]] size_t v_bytes() const { return row_bytes(format, v_cols()) * kPage; }
  [[gnu::always_inline]] size_t layer_bytes() const { return heads * (k_bytes() + v_bytes()); }
  [[gnu::always_inline]] size_t page_bytes() const { return (layers * layer_bytes() + 63) / 64 * 64; }
  [[gnu::always_inline]] size_t k_offset(int layer, int head) const { return layer * layer_bytes() + head * k_bytes(); }
  [[gnu::always_inline]] size_t v_offset(int layer, int head) const { return layer * layer_bytes() + heads * k_bytes() + head * v_bytes(); }
};

struct KvView {
  KvLayout layout;
  std::byte* pages = nullptr;
  [[gnu::always_inline]] std::byte* page(int32_t id) const { return pages + size_t(id) * layout.page_bytes(); }
};

// The formats there are, as --kv names them.
struct KvType {
  const char* name;
  Format format;
};
constexpr KvType kKvTypes[] = {{"f32", Format::f32}, {"f16", Format::f16}, {"q8", Format::q8}};

}  // namespace chaski
