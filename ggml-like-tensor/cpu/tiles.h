// Strips times many tokens by matrix tiles: one instruction multiplies the 16 rows of a panel with
// the activations of up to 16 tokens, exactly. Scales are applied in the order of panel.h, so
// results have the bits of strip.h.
//
// T is the instruction set's tiles, which a test replaces:
//   T::configure(columns)          sets the sizes of the eight tiles, and clears them.
//   T::zero<t>()                   clears tile t.
//   T::load<t>(from, stride)       loads the rows of tile t, which are `stride` bytes apart.
//   T::multiply<dots, acts, panel>()  adds acts times panel to dots.
//   T::store<t>(to)                stores a tile of dot products, 64 bytes a row.
//   T::release()                   ends the use of tiles, so that the system need not save them.
// Tiles 0 to 3 are dot products of 16 tokens with 16 lanes, int32. Tiles 4 and 5 are activations:
// 16 tokens x columns of int8. Tiles 6 and 7 are panels: each of their columns / 4 rows has four
// columns of 16 lanes.
//
// Cost for 32 columns and 16 tokens, on a Xeon of the 6th generation (docs/performance.md): 16
// cycles of multiplication, which overlap with 24 loads and 16 stores of 64 bytes, then 48
// conversions, products and fma for the scales, two a cycle. The two parts take turns: while a tile
// is multiplied, only one of the core's two vector units takes float operations.
#pragma once
#include "ggml-like-tensor/cpu/strip.h"

namespace chaski {
namespace {

constexpr int kDotBytes = 16 * 16 * 4;  // of a tile of dot products

template <DotKind K>
struct TileShape {
  // dot products of a panel: halves with their own scales have one each
  static constexpr int kDots = K.halves || K.apart ? 2 : 1;
  static constexpr int kColumns = 32 / kDots;
  // Panels that are multiplied before their scales are applied. With 16 dot products instead of 8
  // L1 overflows: a prompt takes 1.2 times as long.
  static constexpr int kPanels = 8 / kDots;
};

// What tile_dots() reads and writes: consecutive panels, their activations, and dot products.
struct TileStreams {
  const std::byte *acts, *panels;
  std::byte* dots;
  int64_t act_bytes, panel_bytes;  // of a panel
};

// Dot i, in tile i % 4. The processor does not rename tiles. So a tile is stored, or loaded again,
// only after two more multiplications have begun.
template <class T, int kDots, int i>
inline __attribute__((always_inline)) void tile_dot(const TileStreams& at) {
  constexpr int half = i % kDots, t = i % 4;
  T::template load<4 + t % 2>(at.acts + i / kDots * at.act_bytes + half * 16, sizeof(Act));
  T::template load<6 + t % 2>(at.panels + i / kDots * at.panel_bytes + half * 256, 64);
  T::template zero<t>();
  T::template multiply<t, 4 + t % 2, 6 + t % 2>();
}
template <class T, int i>
inline __attribute__((always_inline)) void store_dot(const TileStreams& at) {
  T::template store<i % 4>(at.dots + i * kDotBytes);
}

// The dot products of panels and activations.
template <class T, int kDots>
__attribute__((noinline)) void tile_dots(TileStreams at, int64_t n_panels) {
  int64_t n = n_panels * kDots;
  const auto go_on = [&](int dots) {
    n -= dots;
    at.acts += dots / kDots * at.act_bytes, at.panels += dots / kDots * at.panel_bytes;
    at.dots += dots * kDotBytes;
  };
  if (n >= 4) {
    tile_dot<T, kDots, 0>(at), tile_dot<T, kDots, 1>(at);
    while (n >= 8) {
      tile_dot<T, kDots, 2>(at), store_dot<T, 0>(at);
      tile_dot<T, kDots, 3>(at), store_dot<T, 1>(at);
      tile_dot<T, kDots, 4>(at), store_dot<T, 2>(at);
      tile_dot<T, kDots, 5>(at), store_dot<T, 3>(at);
      go_on(4);
    }
    tile_dot<T, kDots, 2>(at), store_dot<T, 0>(at);
    tile_dot<T, kDots, 3>(at), store_dot<T, 1>(at);
    store_dot<T, 2>(at), store_dot<T, 3>(at);
    go_on(4);
  }
  while (n > 0) {
    tile_dot<T, kDots, 0>(at), store_dot<T, 0>(at);
    if constexpr (kDots == 2) tile_dot<T, kDots, 1>(at), store_dot<T, 1>(at);
    go_on(kDots);
  }
}

// Adds a panel's dot products under its scales to the sums of 16 tokens.
template <class V, DotKind K>
inline __attribute__((always_inline)) void add_dots(const Panel<V>& w, const Act* acts,
                                                    const std::byte* dots, typename V::F* sums) {
  const auto dot = [&](int half, int n) {
    return V::to_float(
        V::load_i32(reinterpret_cast<const int32_t*>(dots + half * kDotBytes) + 16 * n));
  };
  typename V::F scales[2];
  if constexpr (K.halves) scales[0] = V::to_float(w.s[0]), scales[1] = V::to_float(w.s[1]);
#pragma GCC unroll 16
  for (int n = 0; n < kGroup; ++n) {
    const Act& a = acts[n];
    const auto add = [&](typename V::F x, typename V::F scale) {
      sums[n] = V::fma(x, V::mul(scale, V::set1(a.d)), sums[n]);
    };
    if constexpr (K.apart)
      add(dot(0, n), w.d), add(dot(1, n), w.m);
    else if constexpr (K.halves)  // exact in float (panel.h)
      add(V::fma(dot(1, n), scales[1], V::mul(dot(0, n), scales[0])), w.d);
    else
      add(dot(0, n), w.d);
    if constexpr (K.mins && K.halves)
      add(V::to_float(V::dot_pairs(w.mins, a.half)), w.m);
    else if constexpr (K.mins)
      sums[n] = V::fma(w.m, V::set1(a.ds), sums[n]);
  }
}

// Adds panels times 16 activations of each block, blocks `width` apart, to `result`. Meanwhile it
// requests `next`, the activations that the next call multiplies.
template <class V, class T, DotKind K>
__attribute__((noinline)) void panels_times_tiles(const Panel<V>* panels, int64_t n_panels,
                                                  const Act* acts, int64_t width, const Act* next,
                                                  typename V::F* result) {
  using Shape = TileShape<K>;
  alignas(64) std::byte dots[Shape::kPanels * Shape::kDots * kDotBytes];
  tile_dots<T, Shape::kDots>(
      {reinterpret_cast<const std::byte*>(acts), reinterpret_cast<const std::byte*>(panels), dots,
       width * int64_t(sizeof(Act)), sizeof *panels},
      n_panels);
  typename V::F sums[kGroup];
  load_sums<V, kGroup>(result, sums);
  for (int64_t b = 0; b < n_panels; ++b) {
    prefetch(next + b * kGroup, kGroup * sizeof(Act), 0);
    add_dots<V, K>(panels[b], acts + b * width, dots + b * Shape::kDots * kDotBytes, sums);
  }
  store_sums<V, kGroup>(result, sums);
}

// Subtracts the offset from the codes of n panels. They are signed bytes then.
template <class V, DotKind K>
inline void subtract_offset(Panel<V>* panels, int64_t n) {
  static_assert(K.is_signed ? K.offset == 0 : K.max - K.offset <= 127 && K.offset <= 128);
  if constexpr (K.offset != 0) {
    const auto offset = V::bytes(V::set1_i32(K.offset * 0x01010101));
    for (int64_t b = 0; b < n; ++b)
      for (auto& w : panels[b].w) w = V::sub_bytes(w, offset);
  }
}

// strips_times() of strip.h with the same arguments and result. A group of fewer tokens is computed
// as if it had 16: up to kPastActs bytes after its activations are read, and its other sums in
// `result` change too.
template <class V, class T, class Fmt>
void tiles_times(const std::byte* strips, size_t bytes, int n_strips, int64_t from, int64_t to,
                 const GroupInput* groups, int n_groups, float* result) {
  constexpr DotKind K = Fmt::kDot;
  constexpr int kPanels = TileShape<K>::kPanels, kSums = kGroupsAtOnce * kGroup;
  constexpr int kBytes = int(sizeof(typename Fmt::Tile)) * 32 / Fmt::kBlock;
  Panel<V> panels[kPanels];
  T::configure(TileShape<K>::kColumns);
  for (int64_t b = from; b < to; b += kPanels) {
    const int64_t n = to - b < kPanels ? to - b : kPanels;
    const auto acts_of = [&](int g) { return groups[g].in.acts + b * groups[g].in.width; };
    for (int s = 0; s < n_strips; ++s) {
      const std::byte* const strip = strips + s * bytes;
      unpack_blocks<V, Fmt>(strip, b, b + n, panels);
      subtract_offset<V, K>(panels, n);
      // requests what is unpacked next
      const bool last = s + 1 == n_strips;
      const StripOf<Fmt> next(last ? strips : strip + bytes);
      const auto* at = reinterpret_cast<const char*>(next.tiles()) + (last ? b + n : b) * kBytes;
      for (int64_t i = 0; i < n * kBytes; i += 64) __builtin_prefetch(at + i, 0, 2);
      for (int g = 0; g < n_groups; ++g)
        panels_times_tiles<V, T, K>(
            panels, n, acts_of(g), groups[g].in.width, acts_of(g + 1 < n_groups ? g + 1 : 0),
            reinterpret_cast<typename V::F*>(result) + s * kSums + g * kGroup);
    }
  }
  T::release();
}

// Multiplies tiles from registers. Returns the operations done.
template <class T, DotKind K>
int64_t tile_peak(int64_t rounds) {
  T::configure(TileShape<K>::kColumns);
  for (int64_t i = 0; i < rounds; ++i) {
    T::template multiply<0, 4, 6>();
    T::template multiply<1, 5, 6>();
    T::template multiply<2, 4, 7>();
    T::template multiply<3, 5, 7>();
  }
  T::release();
  return rounds * 4 * 16 * 16 * TileShape<K>::kColumns * 2;
}

}  // namespace
}  // namespace chaski
