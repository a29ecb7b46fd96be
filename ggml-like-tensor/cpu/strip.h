// The inner loops: one strip (16 rows) of a weight, or one K page, times N activations. A lane is a
// row and takes its blocks in order for every N, so a result does not depend on the other tokens.
// Everything that multiplies is here.
//
// Cost for 32 columns and a token on AVX-512 VNNI: 8 vpdpbusd, 1 broadcast, convert, multiply, fma.
// The N tokens share the unpacking.
#pragma once
#include "ggml-like-tensor/ops/operand.h"
#include "quant/formats.h"

namespace chaski {

// Activations, n of them: quantized (acts, blocks `width` apart) or, for float formats, rows of x
// (`cols` columns in all, `stride` apart).
struct StripInput {
  const Act* acts;
  int64_t width;
  const float* x;
  int64_t stride, cols;
};

// The activations of one group of tokens, and the number of these tokens: at most kGroup.
struct GroupInput {
  StripInput in;
  int n;
};

// Whether the processor reads ahead by itself, and does that better if software does not request
// bytes ahead (backends.cpp).
bool reads_ahead();

namespace {

// The most groups of tokens that a kernel takes in one call.
constexpr int kGroupsAtOnce = 4;

// Prefetch distance in bytes: about the latency of memory times one thread's share of bandwidth.
constexpr int kPrefetch = 3072;

inline __attribute__((always_inline)) void prefetch(const void* at, int bytes,
                                                    int ahead = kPrefetch) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(at) + ahead + i);
}

// Whether the lanes multiply a weight with several activations at once.
template <class V>
constexpr bool kManyAtOnce = requires {
  V::kManyAtOnce;
};

// The dots of N activations with groups [kFrom, kTo) of four columns.
template <class V, DotKind K, int kFrom, int kTo, int N>
inline __attribute__((always_inline)) void dots_of(const Panel<V>& w, const Act* a,
                                                   typename V::F* dots) {
  if constexpr (N == 1) {
    dots[0] = V::to_float(V::template dot<K, kFrom, kTo>(w.w, *a));
  } else {
    typename V::I whole[N];
    V::template many_dots<K, kFrom, kTo, N>(w.w, a, whole);
    for (int n = 0; n < N; ++n) dots[n] = V::to_float(whole[n]);
  }
}
// The same over all columns, with a scale for each half.
template <class V, DotKind K, int N>
inline __attribute__((always_inline)) void scaled_dots_of(const Panel<V>& w, const Act* a,
                                                          typename V::F* dots) {
  if constexpr (N == 1) {
    dots[0] = V::template scaled_dot<K>(w.w, w.s, *a);
  } else {
    V::template many_scaled_dots<K, N>(w.w, w.s, a, dots);
  }
}

// Adds the block times activation n to acc[n], in the order of panel.h.
template <class V, DotKind K, int N>
inline __attribute__((always_inline)) void block_dots(const Panel<V>& w, const Act* a,
                                                      typename V::F* acc) {
  if constexpr (N > 1 && !kManyAtOnce<V>) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) block_dots<V, K, 1>(w, a + n, acc + n);
  } else {
    typename V::F dots[N];
    const auto add_times = [&](typename V::F scale) {
      for (int n = 0; n < N; ++n) acc[n] = V::fma(dots[n], V::mul(scale, V::set1(a[n].d)), acc[n]);
    };
    if constexpr (K.apart) {
      dots_of<V, K, 0, 4, N>(w, a, dots);
      add_times(w.d);
      dots_of<V, K, 4, 8, N>(w, a, dots);
      add_times(w.m);
    } else if constexpr (!K.halves) {
      dots_of<V, K, 0, 8, N>(w, a, dots);
      add_times(w.d);
      if constexpr (K.mins)
        for (int n = 0; n < N; ++n) acc[n] = V::fma(w.m, V::set1(a[n].ds), acc[n]);
    } else {
      scaled_dots_of<V, K, N>(w, a, dots);
      add_times(w.d);
      if constexpr (K.mins) {
        for (int n = 0; n < N; ++n) dots[n] = V::to_float(V::dot_pairs(w.mins, a[n].half));
        add_times(w.m);
      }
    }
  }
}

// N sums from and to memory. Not as plain copies: gcc 12 copies the two registers of an AVX2 sum in
// four parts, and a register that is loaded from two stores waits for both to reach the cache.
template <class V, int N>
inline __attribute__((always_inline)) void load_sums(const typename V::F* from, typename V::F* to) {
  for (int n = 0; n < N; ++n) to[n] = V::load(reinterpret_cast<const float*>(from + n));
}
template <class V, int N>
inline __attribute__((always_inline)) void store_sums(typename V::F* to,
                                                      const typename V::F* from) {
  for (int n = 0; n < N; ++n) V::store(reinterpret_cast<float*>(to + n), from[n]);
}

// How many bytes ahead a block requests. A sub-block reads the end of its tile too, where the
// scales are, so that must have been requested by then.
template <class Fmt>
constexpr int kAhead = Fmt::kBlock == 32 ? kPrefetch : kPrefetch + int(sizeof(typename Fmt::Tile));
constexpr int kUnpackAhead = 1024;  // panels_times() has requested the bytes into L2

// The same for one activation. Distance 0 requests the block's own lines in ascending order,
// because the compiler may load them in another one. Tiles of 256 columns are not read from end to
// end.
template <class Fmt>
inline int ahead_of_one() {
  return Fmt::kBlock == 32 && reads_ahead() ? 0 : kAhead<Fmt>;
}

// Calls f(tile, sub-block) for 32-column blocks [from, to), and requests the bytes that are read
// later. A loop in a loop, because computing both numbers of a block from its own takes 20
// instructions.
template <class Fmt, class Fn>
inline __attribute__((always_inline)) void each_sub_block(const StripOf<Fmt>& s, int64_t from,
                                                          int64_t to, int ahead, Fn f) {
  constexpr int kSubs = Fmt::kBlock / 32;
  constexpr int kBytes = int(sizeof(typename Fmt::Tile)) / kSubs;
  int sub = int(uint64_t(from) % kSubs);
  const char* early = reinterpret_cast<const char*>(s.tiles()) + from * kBytes + ahead;
  for (int64_t tile = int64_t(uint64_t(from) / kSubs), left = to - from; left > 0; ++tile, sub = 0)
    for (; sub < kSubs && left > 0; ++sub, --left, early += kBytes) {
      prefetch(early, kBytes, 0);
      f(tile, sub);
    }
}

// Adds blocks [from, to) of the strip times activation n of the group to acc[n]. The group's blocks
// are `width` apart.
template <class V, class Fmt, int N>
__attribute__((noinline)) void int_strip(const void* strip, int64_t from, int64_t to,
                                         const Act* acts, int64_t width, typename V::F* result) {
  const int ahead = N == 1 ? ahead_of_one<Fmt>() : kAhead<Fmt>;
  const StripOf<Fmt> s(strip);
  typename V::F acc[N];
  load_sums<V, N>(result, acc);
  const Act* a = acts + from * width;
  each_sub_block(s, from, to, ahead, [&](int64_t tile, int sub) {
    Panel<V> panel;
    s.template unpack<V>(tile, sub, panel);
    block_dots<V, Fmt::kDot, N>(panel, a, acc);
    a += width;
  });
  store_sums<V, N>(result, acc);
}

// The same in two steps, for formats that take long to unpack (F::kInTwoSteps), for lanes that
// multiply many activations at once, and more than one activation. Some blocks are unpacked into
// panels in L1, which are then multiplied with all activations. Formats of a kind share the
// multiplying code, which keeps compile times short.
template <class V>
constexpr int kPanels = kManyAtOnce<V> ? 16 : 8;
template <class Fmt>
constexpr bool kInTwoSteps = requires {
  Fmt::kInTwoSteps;
};

template <class V, class Fmt>
__attribute__((noinline)) void unpack_blocks(const void* strip, int64_t from, int64_t to,
                                             Panel<V>* panels) {
  const StripOf<Fmt> s(strip);
  each_sub_block(s, from, to, kUnpackAhead,
                 [&](int64_t tile, int sub) { s.template unpack<V>(tile, sub, *panels++); });
}

// The weights that are unpacked next: `bytes` a panel, or 0.
struct NextBlocks {
  const char* at;
  int bytes;
};

// Requests the next weights into L2 meanwhile. Otherwise memory would be idle here, and the next
// unpacking would wait for it.
template <class V, DotKind K, int N>
__attribute__((noinline)) void panels_times(const Panel<V>* panels, int64_t n_panels,
                                            const Act* acts, int64_t width, NextBlocks next,
                                            typename V::F* result) {
  typename V::F acc[N];
  load_sums<V, N>(result, acc);
  for (int64_t b = 0; b < n_panels; ++b, next.at += next.bytes) {
    for (int i = 0; i < next.bytes; i += 64) __builtin_prefetch(next.at + i, 0, 2);
    const Act* a = acts + b * width;
    block_dots<V, K, N>(panels[b], a, acc);
  }
  store_sums<V, N>(result, acc);
}

// How many columns are decoded together: two of a codebook of floats, if the lanes look up bytes.
template <class V, class Fmt>
constexpr int kColumns = requires {
  V::kPicksBytes;
  Fmt::kCodebook;
}
&&kScaledFloat<Fmt> ? 2 : 1;

// Columns i, i + 1, .. of the tiles from t on, kColumns of them.
template <class V, class Fmt>
inline __attribute__((always_inline)) void columns_of(const typename Fmt::Tile* t, uint64_t i,
                                                      typename V::F* out) {
  if constexpr (kColumns<V, Fmt> == 2)  // low nibbles are the first 16 of 32 columns
    V::template pick_two<Fmt::kCodebook>(t->q[i / 32 * 16 + i % 16], int(i % 32 / 16 * 4), out);
  else if constexpr (kScaledFloat<Fmt>)
    out[0] = Fmt::template column<V>(t, int(i));
  else
    out[0] = Fmt::template load<V>(t[i].rows);
}

// Float formats: columns [from, to), `from` a multiple of 32, of S strips that are `bytes` apart,
// times the rows of x, which are `stride` floats apart. Two strips share the broadcasts of x;
// otherwise loads would be the limit. result: [strip][kGroupsAtOnce][kGroup].
template <class V, class Fmt, int N, int S>
__attribute__((noinline)) void float_strips(const std::byte* strips, size_t bytes, int64_t from,
                                            int64_t to, const float* x, int64_t stride,
                                            typename V::F* result) {
  for (int64_t c0 = from; c0 < to; c0 += 32) {
    typename V::F part[S][N];
    for (int s = 0; s < S; ++s)
      for (int n = 0; n < N; ++n) part[s][n] = V::zero();
    const uint64_t tile = uint64_t(c0) / Fmt::kBlock, first = uint64_t(c0) % Fmt::kBlock;
    const typename Fmt::Tile* tiles[S];
    for (int s = 0; s < S; ++s) {
      tiles[s] = reinterpret_cast<const typename Fmt::Tile*>(strips + s * bytes) + tile;
      prefetch(tiles[s], 32 * int(sizeof(typename Fmt::Tile)) / Fmt::kBlock);
    }
    const int64_t end = to - c0 < 32 ? to : c0 + 32;
    for (int64_t c = c0; c < end; c += kColumns<V, Fmt>) {
      typename V::F w[S][kColumns<V, Fmt>];
      for (int s = 0; s < S; ++s) columns_of<V, Fmt>(tiles[s], first + uint64_t(c - c0), w[s]);
      for (int k = 0; k < kColumns<V, Fmt>; ++k)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
          const auto a = V::set1(x[n * stride + c + k]);
          for (int s = 0; s < S; ++s) part[s][n] = V::fma(w[s][k], a, part[s][n]);
        }
    }
    for (int s = 0; s < S; ++s)
      for (int n = 0; n < N; ++n) {
        auto& sum = result[s * kGroupsAtOnce * kGroup + n];
        if constexpr (kScaledFloat<Fmt>)
          sum = V::fma(part[s][n], Fmt::template scale<V>(*tiles[s]), sum);
        else
          sum = V::add(sum, part[s][n]);
      }
  }
}

template <class V>
constexpr bool kFewSizes = requires {
  V::kFewSizes;
};

// Cuts n activations into pieces and calls f.template operator()<N>(first) for each piece: the N
// activations from `first` on. A piece has kMost activations, as many as the registers hold, while
// that many are left. The rest is cut into pieces of 12, 8, 6, ... or 1. Large pieces are better,
// because the weights are unpacked once for each piece. Lanes with kFewSizes have only pieces of
// kMost and 1, so that they compile fast.
template <class V, int kMost, class Fn>
inline __attribute__((always_inline)) void in_pieces(int n, Fn f) {
  int i = 0;
  for (; n - i >= kMost; i += kMost) f.template operator()<kMost>(i);
  if constexpr (kFewSizes<V>)
    for (; i < n; ++i) f.template operator()<1>(i);
  auto piece = [&]<int N>() {
    if constexpr (N < kMost && !kFewSizes<V>)
      if (n - i >= N) f.template operator()<N>(i), i += N;
  };
  piece.template operator()<12>();
  piece.template operator()<8>();
  piece.template operator()<6>();
  piece.template operator()<5>();
  piece.template operator()<4>();
  piece.template operator()<3>();
  piece.template operator()<2>();
  piece.template operator()<1>();
}

// Adds 32-column blocks [from, to) of a strip, in two steps, times the n activations of each group
// to its part of acc, which has kGroup sums.
template <class V, class Fmt>
inline void strip_in_two_steps(const void* strip, int64_t from, int64_t to,
                               const GroupInput* groups, int n_groups, typename V::F* acc) {
  constexpr int kBytes = int(sizeof(typename Fmt::Tile)) * 32 / Fmt::kBlock;
  const char* tiles = reinterpret_cast<const char*>(StripOf<Fmt>(strip).tiles());
  Panel<V> panels[kPanels<V>];
  for (int64_t b = from; b < to; b += kPanels<V>) {
    const int64_t end = to - b < kPanels<V> ? to : b + kPanels<V>;
    unpack_blocks<V, Fmt>(strip, b, end, panels);
    NextBlocks next{tiles + end * kBytes, kBytes};
    for (int g = 0; g < n_groups; ++g) {
      const StripInput& in = groups[g].in;
      in_pieces<V, V::kWide ? 8 : 4>(groups[g].n, [&]<int N>(int i) {
        panels_times<V, Fmt::kDot, N>(panels, end - b, in.acts + b * in.width + i, in.width, next,
                                      acc + g * kGroup + i);
        next.bytes = 0;
      });
    }
  }
}

// Adds 32-column blocks [from, to) of a strip times n activations to acc[0..n).
template <class V, class Fmt>
inline void strip_times(const void* strip, int64_t from, int64_t to, const StripInput& in, int n,
                        typename V::F* acc) {
  if constexpr (Fmt::kFloat) {
    const int64_t end = to * 32 < in.cols ? to * 32 : in.cols;
    in_pieces<V, V::kWide ? 8 : 4>(n, [&]<int N>(int i) {
      float_strips<V, Fmt, N, 1>(static_cast<const std::byte*>(strip), 0, from * 32, end,
                                 in.x + i * in.stride, in.stride, acc + i);
    });
  } else if constexpr (kInTwoSteps<Fmt> || kManyAtOnce<V>) {
    if (n == 1) return int_strip<V, Fmt, 1>(strip, from, to, in.acts, in.width, acc);
    if (!kInTwoSteps<Fmt> && n <= 4)
      return in_pieces<V, 4>(n, [&]<int N>(int i) {
        int_strip<V, Fmt, N>(strip, from, to, in.acts + i, in.width, acc + i);
      });
    const GroupInput group{in, n};
    strip_in_two_steps<V, Fmt>(strip, from, to, &group, 1, acc);
  } else {
    in_pieces<V, V::kWide ? 16 : 4>(n, [&]<int N>(int i) {
      int_strip<V, Fmt, N>(strip, from, to, in.acts + i, in.width, acc + i);
    });
  }
}

// strip_times for n_strips strips that are `bytes` apart, times each group; sums are [strip]
// [kGroupsAtOnce][kGroup] of 16 lanes. Lanes that multiply many activations at once unpack a strip
// once for all groups, because that takes as long as one to three activations. Other lanes take one
// group with all strips before the next group, so its activations stay in L1.
template <class V, class Fmt>
void strips_times(const std::byte* strips, size_t bytes, int n_strips, int64_t from, int64_t to,
                  const GroupInput* groups, int n_groups, float* sums) {
  constexpr int kSums = kGroupsAtOnce * kGroup;
  auto* const acc = reinterpret_cast<typename V::F*>(sums);
  if constexpr (!Fmt::kFloat && kManyAtOnce<V>)
    if (n_groups > 1) {
      for (int s = 0; s < n_strips; ++s)
        strip_in_two_steps<V, Fmt>(strips + s * bytes, from, to, groups, n_groups, acc + s * kSums);
      return;
    }
  for (int g = 0; g < n_groups; ++g) {
    const StripInput& in = groups[g].in;
    const int n = groups[g].n;
    auto* const of_group = acc + g * kGroup;
    int s = 0;
    if constexpr (Fmt::kFloat && V::kWide) {
      const int64_t end = to * 32 < in.cols ? to * 32 : in.cols;
      for (; n >= 4 && s + 2 <= n_strips; s += 2)
        in_pieces<V, 8>(n, [&]<int N>(int i) {
          float_strips<V, Fmt, N, 2>(strips + s * bytes, bytes, from * 32, end,
                                     in.x + i * in.stride, in.stride, of_group + s * kSums + i);
        });
    }
    for (; s < n_strips; ++s)
      strip_times<V, Fmt>(strips + s * bytes, from, to, in, n, of_group + s * kSums);
  }
}

}  // namespace
}  // namespace chaski
