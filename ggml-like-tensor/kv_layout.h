// Where keys and values live: pages of 16 positions from one pool.
//
//   pool       groups x states x heads x (16 x K tile, 16 x V rows): a page is a slice through a
//              group of 16. Pages taken one after the other are neighbours, so a head's keys of 256
//              positions are one stream, and so are its values. States of a pool may differ in
//              heads and widths (state_layout.h)
//   K tile     a strip of 16 rows in tile layout whose rows are the positions: scoring a page is
//              the matmul of a strip with the queries, by the same code as weights (floats:
//              k_dim columns, blocks: k_dim rounded up to 32)
//   V rows     v_cols() channels of 16 positions, a lane is a channel: f32, f16 or f8
//              [position][channel]. In blocks a lane holds four positions, so that integer dot
//              products run over them: q8 int8[channel / 16][position / 4][channel % 16][position %
//              4], q4_0 the same for channel / 32, channel c in the low and c + 16 in the high
//              nibbles. Behind the codes the scales, f16[channel / 32][position]: they are
//              multiplied into the weights.
// Keys of 4 bits are kept rotated (ops/hadamard.h). Kernels of every instruction set use these
// functions: always_inline, so that none leaves a copy with its flags for the linker.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace chaski {

constexpr int kPage = 16;  // positions
constexpr int kPageGroup = 16;
constexpr int64_t whole_groups(int64_t pages) {
  return (pages + kPageGroup - 1) / kPageGroup * kPageGroup;
}

// Of one state.
struct KvLayout {
  Format format = Format::f16;  // one of kKvTypes
  int heads = 0, k_dim = 0, v_dim = 0;
  // values of q8 as on a device: int8[position][channel], f16[position][channel / 32]
  bool by_position = false;

  [[gnu::always_inline]] bool blocks() const {
    return format == Format::q8 || format == Format::q4_0;
  }
  [[gnu::always_inline]] int k_cols() const { return blocks() ? (k_dim + 31) / 32 * 32 : k_dim; }
  [[gnu::always_inline]] int v_cols() const {
    return blocks() ? (v_dim + 31) / 32 * 32 : (v_dim + 15) / 16 * 16;
  }
  // Of blocks: the byte of a channel and position (q4_0: of a channel % 32 < 16 and the one 16
  // further).
  [[gnu::always_inline]] size_t v_byte(int channel, int64_t slot) const {
    if (by_position) return size_t(slot * v_cols() + channel);
    const int lanes = format == Format::q4_0 ? channel / 32 : channel / 16;
    return size_t((lanes * 4 + slot / 4) * 64 + channel % 16 * 4 + slot % 4);
  }
  // offset
  [[gnu::always_inline]] size_t v_scales() const {
    return size_t(kPage) * v_cols() / (format == Format::q4_0 ? 2 : 1);
  }
  [[gnu::always_inline]] size_t v_scale(int block, int64_t slot) const {  // index among the scales
    return size_t(by_position ? slot * (v_cols() / 32) + block : block * kPage + slot);
  }
  [[gnu::always_inline]] size_t k_bytes() const { return strip_bytes(format, k_cols()); }
  [[gnu::always_inline]] size_t v_bytes() const { return row_bytes(format, v_cols()) * kPage; }
  [[gnu::always_inline]] size_t page_bytes() const {
    return size_t(heads) * (k_bytes() + v_bytes());
  }
};

// One state's keys and values.
struct KvView {
  KvLayout layout;
  int pool = 0;                        // whose tables name its pages
  size_t offset = 0, group_bytes = 0;  // within a group of the pool; of a whole group
  std::byte* base = nullptr;           // of the pool

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

// The formats there are, as --kv names them.
struct KvType {
  const char* name;
  Format format;
};
constexpr KvType kKvTypes[] = {{"f32", Format::f32},
                               {"f16", Format::f16},
                               {"f8", Format::f8},
                               {"q8", Format::q8},
                               {"q4_0", Format::q4_0}};

}  // namespace chaski
