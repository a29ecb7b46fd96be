// The second half of attention: sums of values weighted by their scores, page by page of the KV
// cache. A lane is a channel.
//
// f32, f16 and f8 values inside keys: there a lane is a position. A channel has 16 sums over the
// pages, which are added at the end. Cost for a page, 2 channels and N queries on AVX2: a copy of a
// line, 4 widening loads, 2 N loads, 4 N fma.
//
// Values of formats of blocks inside keys: the same with the codes of a block, as floats. The block
// is unpacked once, and a weight is multiplied by the position's scale once. Cost for a page, 4
// channels and N queries: N + 1 loads, 4 dots that select a code, 4 N fma.
//
// Other f32, f16 and f8 values: a channel's sum is added position after position. Cost for a
// position, 64 channels and N queries: 4 widening loads, N broadcasts, 4 N fma.
//
// Formats of blocks use integers. The weights of a chunk of 256 positions are multiplied with the
// scales of the block's values and rounded to 14 bits of the largest product. This loses at most
// 2^-15 of that product; a value's own rounding is 2^-8. They are kept as two bytes of 7 bits and
// multiplied four positions at a time. The sums are exact: 256 * 16383 * 127 < 2^30. Cost for 4
// positions, 16 channels and N queries: a load, 2 N dots.
#pragma once
#include "ggml-like-tensor/cpu/strip.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

// One state's keys and values of one KV head in the pages of a table, with the addresses computed
// once.
struct HeadPages {
  const std::byte* first;  // the keys of page 0
  size_t group_bytes, k_bytes, v_bytes;
  Format format;
  int k_cols, v_cols;
  int v_inside_k;  // number of channels that values share with the keys, or 0
  bool floats;
  const int32_t* table;

  [[gnu::always_inline]] HeadPages(const KvView& kv, int head, const int32_t* table)
      : HeadPages(kv.keys(head, 0), kv.layout, kv.group_bytes, table) {}
  [[gnu::always_inline]] HeadPages(const std::byte* first, const KvLayout& l, size_t group_bytes,
                                   const int32_t* table)
      : first(first),
        group_bytes(group_bytes),
        k_bytes(l.k_bytes()),
        v_bytes(l.v_bytes()),
        format(l.format),
        k_cols(l.k_cols()),
        v_cols(l.v_cols()),
        v_inside_k(l.v_inside_k ? l.v_dim : 0),
        floats(!l.blocks()),
        table(table) {}
  [[gnu::always_inline]] const std::byte* keys(int64_t page) const {
    return first + table[page] / kPageGroup * group_bytes + table[page] % kPageGroup * k_bytes;
  }
  [[gnu::always_inline]] const std::byte* values(int64_t page) const {
    return first + table[page] / kPageGroup * group_bytes + kPageGroup * k_bytes +
           table[page] % kPageGroup * v_bytes;
  }
};

// The weights of one chunk, [query][kChunk], and where the sums are stored, [query][stride].
struct Weighing {
  const float* weights;
  int64_t low, high;  // positions low..high of the chunk have weights
  float* sums;
  int64_t stride;
  const int32_t* more;  // by query: further positions after `high` that have weights
};

namespace {

// Pages that are copies of one chunk; all keys come first.
constexpr int32_t kInOrder[kChunk / kPage] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
inline HeadPages copied_pages(const std::byte* chunk, const KvLayout& l) {
  return {chunk, l, 0, kInOrder};
}

// Calls fn(page, first slot, last slot) for the pages of low..high.
template <class Fn>
inline __attribute__((always_inline)) void each_page(const Weighing& w, Fn fn) {
  for (int64_t page = w.low / kPage; page <= w.high / kPage; ++page)
    fn(page, w.low > page * kPage ? w.low % kPage : 0,
       w.high < page * kPage + kPage - 1 ? w.high % kPage : kPage - 1);
}

// Channels 16 c .. 16 (c + C) of queries n0 .. n0 + N.
template <class V, class F, int N, int C>
void weigh_floats(const HeadPages& h, const Weighing& w, int n0, int c) {
  typename V::F acc[N][C], v[C];
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < C; ++k) acc[n][k] = V::zero();
  const auto load = [&](const typename F::Block* row) {
    for (int k = 0; k < C; ++k) v[k] = F::template load<V>(row + 16 * k);
  };
  const auto rows = [&](int64_t page) {
    return reinterpret_cast<const typename F::Block*>(h.values(page)) + 16 * c;
  };
  each_page(w, [&](int64_t page, int64_t first, int64_t last) {
    const auto* row = rows(page);
    const float* weights = w.weights + n0 * kChunk + page * kPage;
    for (int64_t slot = first; slot <= last; ++slot) {
      load(row + slot * h.v_cols);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const auto weight = V::set1(weights[n * kChunk + slot]);
        for (int k = 0; k < C; ++k) acc[n][k] = V::fma(v[k], weight, acc[n][k]);
      }
    }
  });
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    for (int64_t i = w.high + 1; i <= w.high + w.more[n0 + n]; ++i) {
      load(rows(i / kPage) + i % kPage * h.v_cols);
      const auto weight = V::set1(w.weights[(n0 + n) * kChunk + i]);
      for (int k = 0; k < C; ++k) acc[n][k] = V::fma(v[k], weight, acc[n][k]);
    }
    for (int k = 0; k < C; ++k) V::store(w.sums + (n0 + n) * w.stride + 16 * (c + k), acc[n][k]);
  }
}

// One sum waits for itself at each position. So narrow lanes need more than 16 channels at once if
// queries are few; with more queries their registers have no room for them.
template <class V, int N>
constexpr int kChannels = V::kWide || N == 1 ? 4
                          : N == 2           ? 2
                                             : 1;

template <class V, class F>
void weigh_all_floats(const HeadPages& h, const Weighing& w, int queries) {
  in_pieces<V, 6>(queries, [&]<int N>(int n0) {
    constexpr int kC = kChannels<V, N>;
    int c = 0;
    for (; c + kC <= h.v_cols / 16; c += kC) weigh_floats<V, F, N, kC>(h, w, n0, c);
    for (; c < h.v_cols / 16; ++c) weigh_floats<V, F, N, 1>(h, w, n0, c);
  });
}

// The lane numbers 0, 1, .., 15.
template <class V>
typename V::F lane_numbers() {
  alignas(64) static constexpr float kLane[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                  8, 9, 10, 11, 12, 13, 14, 15};
  return V::load(kLane);
}

// x in lanes [first, last] of a page and `other` in the lanes outside, which may never have been
// written.
template <class V>
typename V::F only(typename V::F x, int64_t first, int64_t last, typename V::F other) {
  if (first <= 0 && last >= kPage - 1) return x;
  const auto lane = lane_numbers<V>();
  x = V::where_less(lane, V::set1(float(first)), other, x);
  return V::where_less(V::set1(float(last)), lane, other, x);
}

// A vector whose lane k is V::sum(of[k]).
template <class V>
auto sums_of(const typename V::F* of) {
  if constexpr (requires { V::sums(of); }) {
    return V::sums(of);
  } else {
    alignas(64) float sums[16];
    for (int k = 0; k < 16; ++k) sums[k] = V::sum(of[k]);
    return V::load(sums);
  }
}

// The lanes whose sums a loop over pages keeps in registers: one register's, if there are few.
template <class V>
struct PartOf {
  using Lanes = V;
  static constexpr int kParts = 1;
};
template <class V>
requires requires { typename V::Half; }
struct PartOf<V> {
  using Lanes = typename V::Half;
  static constexpr int kParts = 2;
};

// The format in which keys are weighed: floats for one that takes long to widen.
template <class F>
using WeighedAs = std::conditional_t<std::is_same_v<F, F8>, F32, F>;

// How many channels and queries are weighed together; their sums are in registers.
template <class V>
constexpr int kTogether = V::kWide ? 4 : PartOf<V>::kParts;
template <class V>
constexpr int kQueriesTogether = V::kWide || PartOf<V>::kParts == 2 ? 4 : 6;

// The lanes of a page that have a weight: all bits of these, and none of the others.
template <class Tile>
struct LaneMask {
  uint64_t words[sizeof(Tile) / sizeof(uint64_t)];
  LaneMask(int64_t first, int64_t last) {
    Tile tile;
    for (int64_t i = 0; i < kPage; ++i)
      __builtin_memset(&tile.rows[i], i >= first && i <= last ? 255 : 0, sizeof tile.rows[i]);
    __builtin_memcpy(words, &tile, sizeof words);
  }
  void apply(Tile& tile) const {
    uint64_t masked[sizeof(Tile) / sizeof(uint64_t)];
    __builtin_memcpy(masked, &tile, sizeof masked);
    for (size_t i = 0; i < sizeof masked / sizeof *masked; ++i) masked[i] &= words[i];
    __builtin_memcpy(&tile, masked, sizeof masked);
  }
};

// Copies channels c .. c + count of the keys of a chunk into `to`, [page][kTogether]; others and
// lanes without a weight become 0. Pages are so far apart that a processor's cache holds all lines
// of a channel in one or two of its sets. They evict each other there.
template <class V, class F>
inline void copy_keys(const std::byte* const* pages, const Weighing& w, int c, int count,
                      typename WeighedAs<F>::Tile* to) {
  using Tile = typename WeighedAs<F>::Tile;
  for (int64_t page = w.low / kPage; page <= w.high / kPage; ++page) {
    const auto* const from = reinterpret_cast<const typename F::Tile*>(pages[page]) + c;
    Tile* const copy = to + page * kTogether<V>;
    __builtin_prefetch(from + kTogether<V>);  // the next channels
    for (int k = 0; k < kTogether<V>; ++k)
      if (k >= count)
        copy[k] = {};
      else if constexpr (std::is_same_v<WeighedAs<F>, F>)
        copy[k] = from[k];
      else
        V::store(copy[k].rows, F::template load<V>(from[k].rows));
  }
  each_page(w, [&](int64_t page, int64_t first, int64_t last) {
    if (first == 0 && last == kPage - 1) return;
    const LaneMask<Tile> mask(first, last);
    for (int k = 0; k < kTogether<V>; ++k) mask.apply(to[page * kTogether<V> + k]);
  });
}

// The floats from the weights of a query to those of the next one. A load of half a line must not
// wait for the same half of another line.
template <class V>
constexpr int kWeightStride = kChunk + (PartOf<V>::kParts == 2 ? kPage / 2 : 0);

// Copied keys times the weights of N queries over pages [from, to). The sums of their lanes, the
// parts added to each other, are stored into sums, [query][16].
template <class V, class F, int N>
__attribute__((noinline)) void weigh_channels(const typename F::Tile* keys, const float* weights,
                                              int64_t from, int64_t to,
                                              typename PartOf<V>::Lanes::F (*sums)[16]) {
  using Lanes = typename PartOf<V>::Lanes;
  constexpr int C = kTogether<V>, kLanes = kPage / PartOf<V>::kParts;
#pragma GCC unroll 1
  for (int part = 0; part < PartOf<V>::kParts; ++part) {
    typename Lanes::F sum[N][C];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) sum[n][i] = Lanes::zero();
    for (int64_t page = from; page < to; ++page) {
      typename Lanes::F key[C];
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i)
        key[i] = F::template load<Lanes>(keys[page * C + i].rows + part * kLanes);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const auto weight =
            Lanes::load(weights + n * kWeightStride<V> + page * kPage + part * kLanes);
#pragma GCC unroll 4
        for (int i = 0; i < C; ++i) sum[n][i] = Lanes::fma(key[i], weight, sum[n][i]);
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) {
        auto* const to_add = reinterpret_cast<float*>(&sums[n][i]);
        Lanes::store(to_add, part == 0 ? sum[n][i] : Lanes::add(Lanes::load(to_add), sum[n][i]));
      }
  }
}

template <class V, class F>
void weigh_all_keys(const HeadPages& h, const Weighing& w, int queries) {
  using Lanes = typename PartOf<V>::Lanes;
  constexpr int C = kTogether<V>;
  const std::byte* pages[kChunk / kPage];
  each_page(w, [&](int64_t page, int64_t, int64_t) { pages[page] = h.keys(page); });
  alignas(64) float weights[kGroup * kWeightStride<V>];
  for (int n = 0; n < queries; ++n)
    __builtin_memcpy(weights + n * kWeightStride<V>, w.weights + n * kChunk,
                     kChunk * sizeof(float));
  alignas(64) typename WeighedAs<F>::Tile keys[kChunk / kPage * C];
  typename Lanes::F sums[kGroup][16];
  for (int c = 0; c < h.v_cols; c += 16) {
    for (int k = 0; k < 16; k += C) {
      const int left = h.v_inside_k - c - k;
      copy_keys<V, F>(pages, w, c + k, left < C ? left : C, keys);
      in_pieces<V, kQueriesTogether<V>>(queries, [&]<int N>(int n) {
        weigh_channels<V, WeighedAs<F>, N>(keys, weights + n * kWeightStride<V>, w.low / kPage,
                                           w.high / kPage + 1,
                                           reinterpret_cast<typename Lanes::F(*)[16]>(&sums[n][k]));
      });
    }
    for (int n = 0; n < queries; ++n) V::store(w.sums + n * w.stride + c, sums_of<Lanes>(sums[n]));
  }
}

// Unpacks the keys of a block of 32 channels, page by page. Stores the weights of N queries times
// the scales of the positions, [query][kChunk].
template <class V, class F, int N>
inline void unpack_keys(const HeadPages& h, const Weighing& w, int n0, int block, Panel<V>* panels,
                        float (*weights)[kChunk]) {
  each_page(w, [&](int64_t page, int64_t first, int64_t last) {
    Panel<V>& p = panels[page];
    F::template unpack<V>(reinterpret_cast<const typename F::Tile*>(h.keys(page))[block], 0, p);
    const auto d = only<V>(p.d, first, last, V::zero());
    for (int n = 0; n < N; ++n)
      V::store(weights[n] + page * kPage,
               V::mul(V::load(w.weights + (n0 + n) * kChunk + page * kPage), d));
  });
}

// The sums of channels 4 g .. 4 g + 3 of the block, for formats whose codes have this offset. All
// formats share this function.
template <class V, int N>
__attribute__((noinline)) void weigh_key_codes(const Panel<V>* panels,
                                               const float (*weights)[kChunk], const Weighing& w,
                                               int g, int offset_of_codes,
                                               typename V::F (*acc)[16]) {
  alignas(4) static constexpr uint8_t kSelect[4][4] = {
      {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
  const auto offset = V::set1_i32(-offset_of_codes);
  typename V::F sum[N][4];
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 4; ++k) sum[n][k] = V::zero();
  each_page(w, [&](int64_t page, int64_t, int64_t) {
    typename V::F weight[N];
    for (int n = 0; n < N; ++n) weight[n] = V::load(weights[n] + page * kPage);
    for (int k = 0; k < 4; ++k) {
      const auto code = V::to_float(V::dot_four(offset, panels[page].w[g], kSelect[k]));
      for (int n = 0; n < N; ++n) sum[n][k] = V::fma(code, weight[n], sum[n][k]);
    }
  });
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 4; ++k) acc[n][g % 4 * 4 + k] = sum[n][k];
}

template <class V, class F, int N>
void weigh_key_blocks(const HeadPages& h, const Weighing& w, int n0) {
  Panel<V> panels[kChunk / kPage];
  alignas(64) float weights[N][kChunk];
  typename V::F acc[N][16];
  for (int block = 0; block < h.v_cols / 32; ++block) {
    unpack_keys<V, F, N>(h, w, n0, block, panels, weights);
#pragma GCC unroll 1
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 1
      for (int g = 4 * half; g < 4 * half + 4; ++g)
        weigh_key_codes<V, N>(panels, weights, w, g, F::kDot.offset, acc);
      for (int n = 0; n < N; ++n)
        V::store(w.sums + (n0 + n) * w.stride + 32 * block + 16 * half, sums_of<V>(acc[n]));
    }
  }
}

// One query's weights for one block of 32 channels: round(weight * scale of the value / unit) = 128
// high + low.
struct BlockWeights {
  alignas(64) uint8_t high[kChunk], low[kChunk];
  float unit;
  int32_t sum;
};

template <class V, class F, int N>
void round_weights(const HeadPages& h, const Weighing& w, int n0, int block, BlockWeights* out) {
  alignas(64) float products[N][kChunk];
  typename V::F most[N], not_finite[N];  // stays 0, or becomes NaN
  for (int n = 0; n < N; ++n) most[n] = not_finite[n] = V::zero();
  each_page(w, [&](int64_t page, int64_t first, int64_t last) {
    const auto* scales =
        reinterpret_cast<const uint16_t*>(h.values(page) + KvLayout::v_scales<F>(h.v_cols)) +
        block * kPage;
    const auto d = only<V>(V::load_f16(scales), first, last, V::zero());
    const int64_t at = page * kPage;
    for (int n = 0; n < N; ++n) {
      const auto product = V::mul(V::load(w.weights + (n0 + n) * kChunk + at), d);
      V::store(products[n] + at, product);
      not_finite[n] = V::fma(product, V::zero(), not_finite[n]);
      most[n] = V::max(V::abs(product), most[n]);
    }
  });
  for (int n = 0; n < N; ++n) {
    if (!(V::sum(not_finite[n]) == 0)) {  // such a product has no code, so the result becomes NaN
      __builtin_memset(&out[n], 0, sizeof out[n]);
      out[n].unit = __builtin_nanf("");
      continue;
    }
    const float largest = V::maximum(most[n]);
    const auto inverse = V::set1(largest > 1e-30f ? 16383 / largest : 0);
    out[n].unit = largest / 16383;
    auto sum = V::set1_i32(0);
    for (int64_t at = w.low / kPage * kPage; at <= w.high; at += kPage) {
      const auto code = V::to_int(V::mul(V::load(products[n] + at), inverse));
      V::store_i8(reinterpret_cast<int8_t*>(out[n].high) + at, V::shift_right(code, 7));
      V::store_i8(reinterpret_cast<int8_t*>(out[n].low) + at, V::bit_and(code, V::set1_i32(127)));
      sum = V::add_i32(sum, code);
    }
    out[n].sum = V::sum_i32(sum);
  }
}

// Channels 32 block .. 32 block + 31 of queries n0 .. n0 + N.
template <class V, class F, int N>
void weigh_block(const HeadPages& h, const Weighing& w, int n0, int block) {
  using Page = PageOf<F>;
  BlockWeights weights[N];
  round_weights<V, F, N>(h, w, n0, block, weights);
  typename V::I high[N][2], low[N][2];
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 2; ++k) high[n][k] = low[n][k] = V::set1_i32(0);
  each_page(w, [&](int64_t page, int64_t, int64_t) {
    const std::byte* codes = h.values(page) + block * (512 / Page::kChannelsAByte);
    const int64_t at = page * kPage;
    for (int g = 0; g < 4; ++g) {
      typename V::B v[2];
      if constexpr (Page::kChannelsAByte == 2) {
        const auto both = V::load_bytes(codes + 64 * g);
        v[0] = V::low_nibbles(both), v[1] = V::high_nibbles(both);
      } else {
        v[0] = V::load_bytes(codes + 64 * g), v[1] = V::load_bytes(codes + 256 + 64 * g);
      }
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n)
#pragma GCC unroll 2
        for (int k = 0; k < 2; ++k) {
          high[n][k] = V::dot_four(high[n][k], v[k], weights[n].high + at + 4 * g);
          low[n][k] = V::dot_four(low[n][k], v[k], weights[n].low + at + 4 * g);
        }
    }
  });
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 2; ++k) {
      const auto whole = V::add_i32(V::shift_left(high[n][k], 7), low[n][k]);
      const auto sum = V::to_float(V::add_i32(whole, V::set1_i32(-Page::kOffset * weights[n].sum)));
      V::store(w.sums + (n0 + n) * w.stride + 32 * block + 16 * k,
               V::mul(sum, V::set1(weights[n].unit)));
    }
}

template <class V, class F>
void weigh_all_blocks(const HeadPages& h, const Weighing& w, int queries) {
  in_pieces<V, V::kWide ? 4 : 2>(queries, [&]<int N>(int n0) {
    for (int block = 0; block < h.v_cols / 32; ++block) weigh_block<V, F, N>(h, w, n0, block);
  });
}

// Whether the queries of one call may see different last positions.
inline __attribute__((always_inline)) bool weighs_unequal(const HeadPages& h) {
  return h.floats && h.v_inside_k == 0;
}

template <class V, class F>
void weigh_values(const HeadPages& h, const Weighing& w, int queries) {
  if constexpr (!F::kFloat)
    h.v_inside_k > 0
        ? in_pieces<V, 4>(queries, [&]<int N>(int n0) { weigh_key_blocks<V, F, N>(h, w, n0); })
        : weigh_all_blocks<V, F>(h, w, queries);
  else if (h.v_inside_k > 0)
    weigh_all_keys<V, F>(h, w, queries);
  else
    weigh_all_floats<V, F>(h, w, queries);
}

}  // namespace
}  // namespace chaski
