// Where keys and values are stored: pages of 16 positions from one pool.
//
//   pool       groups x states x heads x (16 x K tile, 16 x V rows). A page is a slice through a
//              group of 16. Pages that are allocated one after another are neighbours, so a head's
//              keys of 256 positions are one stream, and so are its values. States of a pool may
//              differ in heads and widths (state_layout.h)
//   K tile     a strip of 16 rows in tile layout; its rows are the positions. Scoring a page is
//              the matmul of a strip with the queries, by the same code as weights. Floats have
//              k_dim columns, blocks have k_dim rounded up to 32
//   V rows     v_cols() channels of 16 positions; a lane is a channel. f32, f16 or f8:
//              [position][channel]. In blocks a lane holds four positions, so that integer dot
//              products run over positions. q8: int8[channel / 16][position / 4][channel % 16]
//              [position % 4]. q4_0: the same with channel / 32, channel c in the low and c + 16 in
//              the high nibbles. The scales follow the codes: f16[channel / 32][position]. They
//              are multiplied into the weights
// Keys of f8, q8 and q4_0 are stored centered, those of blocks also scaled and rotated
// (ops/kv_write.h). Values of q4_0 are stored rotated.
// Kernels of every instruction set use these functions. They are always_inline, so that no object
// leaves a copy with its flags for the linker.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ggml-like-tensor/kv_formats.h"

namespace chaski {

constexpr int kPage = 16;  // positions
constexpr int kPageGroup = 16;
// Positions that attention scores together. Chunks are merged in order, so a token's result does
// not depend on the thread that reads them.
constexpr int kChunk = 256;
constexpr int64_t whole_groups(int64_t pages) {
  return (pages + kPageGroup - 1) / kPageGroup * kPageGroup;
}

// The layout of one state.
struct KvLayout {
  Format format = Format::f16;  // one of kKvTypes
  int heads = 0, k_dim = 0, v_dim = 0;
  // as on a device; values of q8: int8[position][channel], f16[position][channel / 32]
  bool by_position = false;
  // no V rows: values are read from the K tile
  bool v_inside_k = false;

  // Channels of a key, or of a value, that are rotated together, or 0.
  template <class F>
  [[gnu::always_inline]] int key_rotation() const {
    // Values inside keys are a whole number of such blocks.
    const int whole = v_inside_k ? k_dim | v_dim : k_dim;
    return PageOf<F>::kRotation == kWholeHead ? whole & -whole : PageOf<F>::kRotation;
  }
  template <class F>
  [[gnu::always_inline]] int value_rotation() const {
    if (v_inside_k) return key_rotation<F>();
    return PageOf<F>::kValueRotation == kWholeHead ? v_dim & -v_dim : PageOf<F>::kValueRotation;
  }
  [[gnu::always_inline]] bool blocks() const { return info(format).block > 1; }
  [[gnu::always_inline]] int k_cols() const { return blocks() ? (k_dim + 31) / 32 * 32 : k_dim; }
  [[gnu::always_inline]] int v_cols() const {
    return blocks() ? (v_dim + 31) / 32 * 32 : (v_dim + 15) / 16 * 16;
  }
  // The byte of a channel and position in format F of blocks. If a byte has two channels, they are
  // the one with channel % 32 < 16 and the one 16 further.
  template <class F>
  [[gnu::always_inline]] size_t v_byte(int channel, int64_t slot) const {
    if (by_position) return size_t(slot * v_cols() + channel);
    const int lanes = channel / (16 * PageOf<F>::kChannelsAByte);
    return size_t((lanes * 4 + slot / 4) * 64 + channel % 16 * 4 + slot % 4);
  }
  template <class F>
  [[gnu::always_inline]] static size_t v_scales(int v_cols) {  // byte offset of the scales
    return size_t(kPage) * v_cols / PageOf<F>::kChannelsAByte;
  }
  [[gnu::always_inline]] size_t v_scale(int block, int64_t slot) const {  // index of a scale
    return size_t(by_position ? slot * (v_cols() / 32) + block : block * kPage + slot);
  }
  [[gnu::always_inline]] size_t k_bytes() const { return strip_bytes(format, k_cols()); }
  [[gnu::always_inline]] size_t v_bytes() const {
    return v_inside_k ? 0 : row_bytes(format, v_cols()) * kPage;
  }
  [[gnu::always_inline]] size_t page_bytes() const {
    return size_t(heads) * (k_bytes() + v_bytes());
  }
};

// The keys and values of one state.
struct KvView {
  KvLayout layout;
  int pool = 0;                        // its tables name the pages of this state
  size_t offset = 0, group_bytes = 0;  // offset in a group of the pool; bytes of a whole group
  std::byte* base = nullptr;           // address of the pool

  [[gnu::always_inline]] std::byte* keys(int head, int32_t page) const {
    const size_t group = page / kPageGroup, slot = page % kPageGroup,
                 both = layout.k_bytes() + layout.v_bytes();
    return base + group * group_bytes + offset + size_t(head) * kPageGroup * both +
           slot * layout.k_bytes();
  }
  [[gnu::always_inline]] std::byte* values(int head, int32_t page) const {
    const size_t slot = page % kPageGroup;
    return keys(head, page) + (kPageGroup - slot) * layout.k_bytes() + slot * layout.v_bytes();
  }
};

}  // namespace chaski
