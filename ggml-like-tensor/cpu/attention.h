// Attention over KV pages. Flash style (Dao et al. 2022): it scores 256 positions at a time, keeps
// their soft-max as (weighted values, maximum, sum), and merges chunk by chunk, from first to last.
// Chunks start at multiples of 256 positions and do not depend on threads or batches. So a token's
// result depends on its sequence alone.
//
// Query heads that share a KV head, and tokens that see the same pages, are computed together: up
// to 16 queries, a block. The K page is the weight strip and the queries are the tokens of strip.h.
// A prompt has enough blocks for all threads. There a unit of work is a block of tokens of one
// sequence, and it goes through all chunks that they see. With few tokens there are few blocks, and
// the pages that tokens share differ from chunk to chunk. There a unit is a group of the batch's
// Reading and a KV head, or one of the group's blocks if groups are few. The thread that computes a
// token's last chunk merges all its chunks, in order.
#pragma once
#include "ggml-like-tensor/cpu/quantize.h"
#include "ggml-like-tensor/cpu/values.h"
#include "ggml-like-tensor/ops/attention.h"
#include "ggml-like-tensor/ops/hadamard.h"

namespace chaski {
namespace {

constexpr int kQueries = kGroup;
constexpr int kFewQueries = 4;  // up to this number, queries are scored without padding by zeros

// Some tokens, times the query heads [first_head, first_head + heads) of one KV head.
struct QueryBlock {
  // for each token: its index, its cell, and the last cell that it sees
  int64_t token[kQueries], cell[kQueries], last[kQueries];
  int tokens, heads, kv_head, first_head;
  int64_t sequence;  // for a block of one sequence: the sequence's first token in the batch
  int count() const { return tokens * heads; }
  int64_t token_of(int query) const { return token[query / heads]; }
  int head_of(int query) const { return first_head + query % heads; }
};

template <class V>
struct CpuKernel<Attention, V> {
  using F = typename V::F;

  // Memory of a thread. A part is one query's share of a chunk: v_cols sums, the maximum, the sum
  // of weights.
  struct Work {
    std::byte* chunk;  // keys and values of the batch itself
    // (kQueries, kChunk); (k_cols, kQueries) queries; (kQueries, part_floats) twice; (k_cols)
    float *scores, *q, *parts, *totals, *row;
    Act* acts;                     // (k_cols / 32, count)
    const FormatKernels* kernels;  // of the format of keys and values
  };
  static int64_t part_floats(const KvLayout& l) { return l.v_cols() + 16; }
  static const KvView& view(const Attention& op, const OpArgs& a) {
    return a.where->states.paged[op.state];
  }
  static KvLayout layout(const Attention& op, const OpArgs& a) {
    return op.source == Attention::Source::pages
               ? view(op, a).layout
               : KvLayout{Format::f32, 1, op.kv.k_dim, op.kv.v_dim};
  }
  static size_t chunk_bytes(const Attention& op, const OpArgs& a) {
    return op.source == Attention::Source::pages
               ? 0
               : size_t(kChunk / kPage) * layout(op, a).page_bytes();
  }
  static const Reading& reading(const Attention& op, const OpArgs& a) {
    return a.batch->readings[view(op, a).pool];
  }

  static int tokens_per_block(const Attention& op) {
    return op.group() >= kQueries ? 1 : kQueries / op.group();
  }
  // Blocks for one token and KV head.
  static int64_t blocks_per_token(const Attention& op) {
    return (op.group() + kQueries - 1) / kQueries;
  }

  // Number of chunks up to the batch's last cell.
  static int64_t chunks(const OpArgs& a) {
    int32_t last = 0;
    for (int32_t cell : a.batch->cells) last = cell > last ? cell : last;
    return last / kChunk + 1;
  }
  // Whether units are chunks. They are with few tokens, and if sequences that are too short to fill
  // blocks share the pages they read.
  static bool by_chunks(const Attention& op, const OpArgs& a) {
    if (op.source == Attention::Source::batch || op.mask == Attention::Mask::full) return false;
    const int64_t tokens = a.in[0].shape.rows;
    if (tokens * op.kv.heads > kSharedCounters || chunks(a) == 1) return false;
    const Reading& r = reading(op, a);
    return tokens <= kGroup || (2 * int64_t(r.groups.size()) <= r.alone &&
                                tokens * op.group() < r.sequences * kQueries);
  }
  static int64_t tokens_of(const Reading& r, const Reading::Group& g) {
    int64_t n = 0;
    for (int i = g.first; i < g.end; ++i) n += r.runs[i].end - r.runs[i].first;
    return n;
  }
  static int64_t blocks_of(const Attention& op, const Reading& r, const Reading::Group& g) {
    const int64_t per = tokens_per_block(op);
    return (tokens_of(r, g) + per - 1) / per * blocks_per_token(op);
  }
  // The units of a KV head. Either groups: all blocks of a group are computed one after another
  // while the chunk is in a near cache. Or blocks, so that there is work for many threads.
  struct Units {
    bool groups;
    int64_t count;
  };
  static Units units_of_head(const Attention& op, const OpArgs& a) {
    const Reading& r = reading(op, a);
    const int64_t groups = r.groups.size();
    if (groups * op.kv.heads >= kManyUnits) return {true, groups};
    int64_t blocks = 0;
    for (const Reading::Group& g : r.groups) blocks += blocks_of(op, r, g);
    return {false, blocks};
  }
  static constexpr int kManyUnits = 64;

  static int64_t units(const Attention& op, const OpArgs& a) {
    if (by_chunks(op, a)) return op.kv.heads * units_of_head(op, a).count;
    const int per = tokens_per_block(op);
    return (a.in[0].shape.rows + per - 1) / per * op.kv.heads;
  }
  // A few chunks at once: queries are quantized once for them.
  static int64_t grain(const Attention& op, const OpArgs& a) {
    const int64_t share = units(op, a) / 32;
    return !by_chunks(op, a) || share < 1 ? 1 : share < 4 ? share : 4;
  }
  static size_t scratch(const Attention& op, const OpArgs& a) {
    const KvLayout l = layout(op, a);
    return chunk_bytes(op, a) +
           kQueries * sizeof(float) * (kChunk + l.k_cols() + 2 * part_floats(l)) +
           l.k_cols() * sizeof(float) + kQueries * sizeof(Act) * (l.k_cols() / 32 + 1);
  }
  // The parts of all queries and chunks.
  static size_t shared(const Attention& op, const OpArgs& a) {
    return by_chunks(op, a) ? size_t(a.in[0].shape.rows * op.heads * chunks(a) *
                                     part_floats(layout(op, a)) * sizeof(float))
                            : 0;
  }

  // Divides scratch(op, a) bytes of memory into the arrays of a Work.
  static Work work(const Attention& op, const OpArgs& a, std::byte* memory,
                   const FormatKernels* formats) {
    const KvLayout l = layout(op, a);
    Work w;
    w.chunk = memory;
    w.scores = reinterpret_cast<float*>(w.chunk + chunk_bytes(op, a));
    w.q = w.scores + kQueries * kChunk;
    w.parts = w.q + kQueries * l.k_cols();
    w.totals = w.parts + kQueries * part_floats(l);
    w.row = w.totals + kQueries * part_floats(l);
    w.acts = reinterpret_cast<Act*>(w.row + l.k_cols());
    w.kernels = &formats[int(l.format)];
    return w;
  }
  static void run(const Attention& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const Work w = work(op, a, scratch.own, scratch.formats);
    if (by_chunks(op, a)) return some_chunks(op, a, w, first, last, scratch);
    for (int64_t u = first; u < last; ++u)
      each_block(op, a, u, [&](const QueryBlock& b) { whole(op, a, b, w); });
  }

  // Computes units [first, last). Consecutive query blocks often have the same queries, which are
  // then loaded once.
  static void some_chunks(const Attention& op, const OpArgs& a, const Work& w, int64_t first,
                          int64_t last, const Scratch& scratch) {
    const Reading& r = reading(op, a);
    const Units units = units_of_head(op, a);
    const int64_t n = chunks(a), stride = part_floats(layout(op, a));
    const auto part = [&](int64_t token, int head, int64_t chunk) {
      return reinterpret_cast<float*>(scratch.shared) +
             ((token * op.heads + head) * n + chunk) * stride;
    };
    QueryBlock loaded;
    loaded.tokens = 0;
    for (int64_t u = first; u < last; ++u) {
      const int kv_head = int(u / units.count);
      int64_t at = u % units.count, group = units.groups ? at : 0, from = 0, to = 0;
      for (;; ++group) {
        to = blocks_of(op, r, r.groups[group]);
        if (units.groups) break;
        if (at < to) {
          from = at, to = at + 1;
          break;
        }
        at -= to;
      }
      const Reading::Group& g = r.groups[group];
      for (int64_t i = from; i < to; ++i) {
        const QueryBlock b = block_of(op, a, r, g, kv_head, i);
        if (!same(b, loaded)) load_queries(op, a, b, w), loaded = b;
        one_chunk(op, a, b, w, g.chunk);
        for (int q = 0; q < b.count(); ++q)
          __builtin_memcpy(part(b.token_of(q), b.head_of(q), g.chunk), w.parts + q * stride,
                           stride * sizeof(float));
        for (int t = 0; t < b.tokens; ++t)
          if (is_last(op, a, b.token[t], kv_head, scratch))
            merge_all(op, a, w, b.token[t], kv_head, part);
      }
    }
  }
  // Returns block i of a group.
  static QueryBlock block_of(const Attention& op, const OpArgs& a, const Reading& r,
                             const Reading::Group& g, int kv_head, int64_t i) {
    const int64_t pieces = blocks_per_token(op);
    QueryBlock b = of_heads(op, kv_head, int(i % pieces));
    int64_t skip = i / pieces * tokens_per_block(op);
    for (int k = g.first; k < g.end && b.tokens < tokens_per_block(op); ++k) {
      const Reading::Run& run = r.runs[k];
      for (int64_t t = run.first + skip; t < run.end && b.tokens < tokens_per_block(op); ++t)
        add(b, t, a.batch->cells[t], a.batch->cells[t]);
      skip = skip > run.end - run.first ? skip - (run.end - run.first) : 0;
    }
    return b;
  }
  static void add(QueryBlock& b, int64_t token, int64_t cell, int64_t last) {
    b.token[b.tokens] = token, b.cell[b.tokens] = cell, b.last[b.tokens] = last;
    ++b.tokens;
  }
  // Returns a block with these heads and no tokens yet.
  static QueryBlock of_heads(const Attention& op, int kv_head, int piece) {
    const int first = piece * kQueries, left = op.group() - first;
    QueryBlock b;
    b.tokens = 0, b.heads = left < kQueries ? left : kQueries, b.kv_head = kv_head;
    b.first_head = kv_head * op.group() + first;
    return b;
  }
  static bool same(const QueryBlock& x, const QueryBlock& y) {
    return x.tokens == y.tokens && x.first_head == y.first_head &&
           !__builtin_memcmp(x.token, y.token, x.tokens * sizeof(x.token[0]));
  }
  // Counts a finished block of the token. Returns true for the last of all its chunks.
  static bool is_last(const Attention& op, const OpArgs& a, int64_t token, int kv_head,
                      const Scratch& scratch) {
    const int32_t cell = a.batch->cells[token];
    const int64_t all =
        (cell / kChunk - op.kv.first_seen(cell) / kChunk + 1) * blocks_per_token(op);
    uint32_t* counter = scratch.counters + token * op.kv.heads + kv_head;
    if (__atomic_add_fetch(counter, 1, __ATOMIC_ACQ_REL) < uint32_t(all)) return false;
    __atomic_store_n(counter, 0, __ATOMIC_RELAXED);
    return true;
  }
  template <class Part>
  static void merge_all(const Attention& op, const OpArgs& a, const Work& w, int64_t token,
                        int kv_head, Part part) {
    const int v_cols = layout(op, a).v_cols();
    const int64_t stride = part_floats(layout(op, a));
    for (int piece = 0; piece < blocks_per_token(op); ++piece) {
      QueryBlock b = of_heads(op, kv_head, piece);
      add(b, token, a.batch->cells[token], a.batch->cells[token]);
      clear_totals(op, a, b, w);
      for (int64_t c = first_chunk(op, b); c <= last_chunk(b); ++c)
        for (int q = 0; q < b.count(); ++q)
          merge_query(w.totals + q * stride, part(token, b.head_of(q), c), v_cols);
      write(op, a, b, w);
    }
  }

  // Calls fn for blocks of up to tokens_per_block() tokens; a new sequence starts a new block.
  template <class Fn>
  static void each_block(const Attention& op, const OpArgs& a, int64_t unit, Fn fn) {
    const int64_t per = tokens_per_block(op), begin = unit / op.kv.heads * per,
                  rows = a.in[0].shape.rows, end = begin + per < rows ? begin + per : rows;
    const auto same_sequence = [&](int64_t t, int64_t other) {
      return a.batch->sequences[t] == a.batch->sequences[other];
    };
    for (int64_t t = begin; t < end;) {
      int64_t stop = t + 1, first = t, seen_end;
      while (stop < end && same_sequence(stop, t)) ++stop;
      const bool batch = op.source == Attention::Source::batch;
      while (batch && first > 0 && same_sequence(first - 1, t)) --first;
      for (seen_end = stop;
           op.mask == Attention::Mask::full && seen_end < rows && same_sequence(seen_end, t);)
        ++seen_end;
      const auto cell = [&](int64_t i) { return batch ? i - first : a.batch->cells[i]; };
      for (int piece = 0; piece < blocks_per_token(op); ++piece) {
        QueryBlock b = of_heads(op, int(unit % op.kv.heads), piece);
        b.sequence = first;
        for (int64_t i = t; i < stop; ++i)
          add(b, i, cell(i), cell(op.mask == Attention::Mask::full ? seen_end - 1 : i));
        fn(b);
      }
      t = stop;
    }
  }
  // The first chunk that a block of one sequence sees.
  static int64_t first_chunk(const Attention& op, const QueryBlock& b) {
    return op.kv.first_seen(b.cell[0]) / kChunk;
  }
  static int64_t last_chunk(const QueryBlock& b) { return b.last[b.tokens - 1] / kChunk; }

  static void whole(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w) {
    load_queries(op, a, b, w);
    clear_totals(op, a, b, w);
    for (int64_t c = first_chunk(op, b); c <= last_chunk(b); ++c) {
      one_chunk(op, a, b, w, c);
      merge(op, a, b, w, c);
    }
    write(op, a, b, w);
  }

  // Formats of blocks need quantized queries. Floats need column c of all queries, then column c +
  // 1 of all queries.
  static void load_queries(const Attention& op, const OpArgs& a, const QueryBlock& b,
                           const Work& w) {
    const KvLayout l = layout(op, a);
    const int cols = l.k_cols(), count = b.count(), padded = count > kFewQueries ? kQueries : count;
    for (int q = 0; q < padded; ++q) {
      const float* from =
          q < count ? a.in[0].row(b.token_of(q)) + b.head_of(q) * op.kv.k_dim : nullptr;
      if (from && l.blocks()) {
        for (int c = 0; c < cols; ++c) w.row[c] = c < op.kv.k_dim ? from[c] : 0;
        KvFormats::with(l.format, [&]<class Fmt>(Fmt) { op.turn<Fmt>(a, l, b.head_of(q), w.row); });
        from = w.row;
      }
      if (!l.blocks())
        for (int c = 0; c < cols; ++c) w.q[c * kQueries + q] = from ? from[c] : 0;
      else if (from)
        for (int i = 0; i < cols / 32; ++i) quantize_block<V>(from + 32 * i, w.acts[i * count + q]);
    }
  }

  // The positions low..high of a chunk that token t of a block sees; none if high < low.
  struct Seen {
    int64_t low, high;
    bool operator==(const Seen&) const = default;
  };
  static Seen seen(const Attention& op, const QueryBlock& b, int t, int64_t chunk) {
    const int64_t low = op.kv.first_seen(b.cell[t]) - chunk * kChunk,
                  high = b.last[t] - chunk * kChunk;
    return {low > 0 ? low : 0, high < kChunk - 1 ? high : kChunk - 1};
  }

  // The pages with positions [from, to) of a chunk. Keys and values of the batch are copied into
  // pages.
  static HeadPages pages_of(const Attention& op, const OpArgs& a, const QueryBlock& b,
                            const Work& w, int64_t chunk, int64_t from, int64_t to) {
    if (op.source == Attention::Source::pages) {
      const KvView& kv = view(op, a);
      return {kv, b.kv_head, a.batch->table(kv, b.token[0]) + chunk * (kChunk / kPage)};
    }
    const KvLayout l = layout(op, a);
    for (int64_t i = from; i < to; ++i) {
      const int64_t t = b.sequence + chunk * kChunk + i, page = i / kPage, slot = i % kPage;
      const float *key = a.in[1].row(t) + b.kv_head * op.kv.k_dim,
                  *value = a.in[2].row(t) + b.kv_head * op.kv.v_dim;
      auto* columns = reinterpret_cast<F32::Tile*>(w.chunk + page * l.k_bytes());
      auto* row =
          reinterpret_cast<float*>(w.chunk + kChunk / kPage * l.k_bytes() + page * l.v_bytes()) +
          slot * l.v_cols();
      for (int c = 0; c < op.kv.k_dim; ++c) columns[c].rows[slot] = key[c];
      for (int c = 0; c < l.v_cols(); ++c) row[c] = c < op.kv.v_dim ? value[c] : 0;
    }
    return copied_pages(w.chunk, l);
  }

  // Computes scores, soft-max and weighted values of one chunk into w.parts. The part of a token
  // that sees nothing of the chunk is not written.
  static void one_chunk(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w,
                        int64_t chunk) {
    int64_t low = kChunk, high = -1;
    for (int t = 0; t < b.tokens; ++t) {
      const Seen s = seen(op, b, t, chunk);
      if (s.high < s.low) continue;
      low = s.low < low ? s.low : low, high = s.high > high ? s.high : high;
    }
    const HeadPages pages = pages_of(op, a, b, w, chunk, low, high + 1);
    chunk_of_pages(op, b, w, pages, chunk, low / kPage * kPage, high / kPage * kPage + kPage);
  }
  // The same for given pages, which hold positions [from, to) of the chunk.
  static void chunk_of_pages(const Attention& op, const QueryBlock& b, const Work& w,
                             const HeadPages& pages, int64_t chunk, int64_t from, int64_t to) {
    Seen of[kQueries];
    for (int t = 0; t < b.tokens; ++t) of[t] = seen(op, b, t, chunk);
    score_pages(op, b, w, pages, chunk * kChunk, from / kPage, to / kPage);
    const int64_t stride = pages.v_cols + 16;
    for (int t = 0; t < b.tokens; ++t)
      for (int q = t * b.heads; q < (t + 1) * b.heads && of[t].high >= of[t].low; ++q)
        soft_max(w.scores + q * kChunk, from, to, w.parts + q * stride + pages.v_cols);
    int32_t more[kQueries];
    for (int t = 0, end; t < b.tokens; t = end) {
      int64_t least = of[t].high;
      for (end = t + 1; end < b.tokens && same_weighing(pages, of[t], of[end]); ++end)
        least = of[end].high < least ? of[end].high : least;
      if (of[t].high < of[t].low) continue;
      const int first = t * b.heads, last = end * b.heads;
      for (int q = first; q < last; ++q) more[q] = int32_t(of[q / b.heads].high - least);
      w.kernels->weigh_values(pages,
                              {w.scores + first * kChunk, of[t].low, least,
                               w.parts + first * stride, stride, more + first},
                              last - first);
    }
  }
  // Whether the values of two tokens' queries can be weighted together. Their last positions must
  // be within a page of each other, and the kernel must support it.
  static bool same_weighing(const HeadPages& pages, const Seen& x, const Seen& y) {
    const int64_t apart = x.high - y.high;
    return x == y || (weighs_unequal(pages) && x.low == y.low && x.low <= x.high &&
                      y.low <= y.high && apart < kPage && -apart < kPage);
  }

  // Computes scores[q][position] of pages [from, to) of the chunk whose first cell is `start`; -inf
  // where the query must not see the position.
  static void score_pages(const Attention& op, const QueryBlock& b, const Work& w,
                          const HeadPages& pages, int64_t start, int64_t from, int64_t to) {
    const GroupInput queries{{w.acts, b.count(), nullptr, 0, 0}, b.count()};
    const int64_t blocks = (pages.k_cols + 31) / 32;
    float slopes[kQueries];
    for (int q = 0; q < b.count() && op.max_bias > 0; ++q) slopes[q] = op.slope(b.head_of(q));
    for (int64_t page = from; page < to; ++page) {
      F acc[kQueries];
      for (int q = 0; q < kQueries; ++q) acc[q] = V::zero();
      const std::byte* tile = pages.keys(page);
      if (pages.floats)
        KvFormats::with(pages.format, [&]<class Fmt>(Fmt) {
          if constexpr (Fmt::kFloat) score_floats<Fmt>(tile, pages.k_cols, w.q, b.count(), acc);
        });
      else
        w.kernels->strips_times(tile, 0, 1, 0, blocks, &queries, 1, reinterpret_cast<float*>(acc));
      const int64_t at = start + page * kPage;
      for (int t = 0; t < b.tokens; ++t) {
        const int64_t cell = b.cell[t], first = op.kv.first_seen(cell) - at, last = b.last[t] - at;
        for (int q = t * b.heads; q < (t + 1) * b.heads; ++q) {
          F score = finish_score(op, acc[q]);
          if (op.max_bias > 0)
            score = V::fma(V::add(lane_numbers<V>(), V::set1(float(at - cell))), V::set1(slopes[q]),
                           score);
          V::store(w.scores + q * kChunk + page * kPage,
                   only<V>(score, first, last, V::set1(-INFINITY)));
        }
      }
    }
  }
  // Computes the same numbers as float_strips() in strip.h, but the queries of a column are next to
  // each other: that many rows would need more addresses than there are registers. With more than
  // kFewQueries queries, zeros follow the last, so that one piece takes all.
  template <class Fmt>
  static void score_floats(const std::byte* tile, int cols, const float* q, int count, F* acc) {
    const auto piece = [&]<int N>(int first) {
      score_piece<Fmt, N>(reinterpret_cast<const typename Fmt::Tile*>(tile), cols, q + first,
                          acc + first);
    };
    if constexpr (V::kWide) {
      if (count > 12) return piece.template operator()<16>(0);
      if (count > 8) return piece.template operator()<12>(0);
      if (count > 6) return piece.template operator()<8>(0);
      if (count > kFewQueries) return piece.template operator()<6>(0);
    }
    in_pieces<V, V::kWide ? kFewQueries : 6>(count, piece);
  }
  template <class Fmt, int N>
  __attribute__((noinline)) static void score_piece(const typename Fmt::Tile* columns, int cols,
                                                    const float* q, F* acc) {
    for (int from = 0; from < cols; from += 32) {
      F part[N];
      for (int n = 0; n < N; ++n) part[n] = V::zero();
      prefetch(columns + from, 32 * int(sizeof(typename Fmt::Tile)));
      const int to = cols - from < 32 ? cols : from + 32;
      for (int c = from; c < to; ++c) {
        const F key = Fmt::template load<V>(columns[c].rows);
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) part[n] = V::fma(key, V::set1(q[c * kQueries + n]), part[n]);
      }
      for (int n = 0; n < N; ++n) acc[n] = V::add(acc[n], part[n]);
    }
  }
  static F finish_score(const Attention& op, F dot) {
    const F score = V::mul(dot, V::set1(op.scale));
    return op.soft_cap > 0
               ? V::mul(V::set1(op.soft_cap), tanh<V>(V::div(score, V::set1(op.soft_cap))))
               : score;
  }

  // Turns scores into weights e^(s - maximum) in place; the sum has 16 partial sums, one in each
  // lane.
  static void soft_max(float* scores, int64_t from, int64_t to, float* maximum_and_sum) {
    F m = V::set1(-INFINITY), s = V::zero();
    for (int64_t i = from; i < to; i += 16) m = V::max(V::load(scores + i), m);
    const float most = V::maximum(m);
    for (int64_t i = from; i < to; i += 16) {
      const F e = exp<V>(V::sub(V::load(scores + i), V::set1(most)));
      V::store(scores + i, e);
      s = V::add(s, e);
    }
    maximum_and_sum[0] = most, maximum_and_sum[1] = V::sum(s);
  }

  static void clear_totals(const Attention& op, const OpArgs& a, const QueryBlock& b,
                           const Work& w) {
    const int v_cols = layout(op, a).v_cols();
    const int64_t stride = part_floats(layout(op, a));
    __builtin_memset(w.totals, 0, size_t(b.count() * stride) * sizeof(float));
    for (int q = 0; q < b.count(); ++q) w.totals[q * stride + v_cols] = -INFINITY;
  }
  static void merge(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w,
                    int64_t chunk) {
    const int v_cols = layout(op, a).v_cols();
    const int64_t stride = part_floats(layout(op, a));
    for (int t = 0; t < b.tokens; ++t) {
      const Seen s = seen(op, b, t, chunk);
      for (int q = t * b.heads; q < (t + 1) * b.heads && s.low <= s.high; ++q)
        merge_query(w.totals + q * stride, w.parts + q * stride, v_cols);
    }
  }
  static void merge_query(float* total, const float* part, int v_cols) {
    float *maximum = total + v_cols, *sum = maximum + 1;
    const float most = part[v_cols], merged = *maximum > most ? *maximum : most;
    alignas(64) float scale[16] = {*maximum - merged, most - merged};
    V::store(scale, exp<V>(V::load(scale)));
    *maximum = merged;
    *sum = *sum * scale[0] + part[v_cols + 1] * scale[1];
    for (int c = 0; c < v_cols; c += 16)
      V::store(total + c, V::fma(V::load(part + c), V::set1(scale[1]),
                                 V::mul(V::load(total + c), V::set1(scale[0]))));
  }

  // Adds the sink as a chunk of one position whose value is 0.
  static void add_sink(float* total, float sink, int v_cols) {
    float *maximum = total + v_cols, *sum = maximum + 1;
    const float merged = *maximum > sink ? *maximum : sink;
    alignas(64) float scale[16] = {*maximum - merged, sink - merged};
    V::store(scale, exp<V>(V::load(scale)));
    *sum = *sum * scale[0] + scale[1];
    for (int c = 0; c < v_cols; c += 16)
      V::store(total + c, V::mul(V::load(total + c), V::set1(scale[0])));
  }

  static void write(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w) {
    const KvLayout l = layout(op, a);
    const int v_cols = l.v_cols();
    const int64_t stride = part_floats(l);
    int rotation = 0;
    KvFormats::with(l.format, [&]<class Fmt>(Fmt) { rotation = l.value_rotation<Fmt>(); });
    for (int q = 0; q < b.count(); ++q) {
      const int64_t t = b.token_of(q), head = b.head_of(q);
      float* total = w.totals + q * stride;
      if (op.sinks) add_sink(total, a.in[op.sinks_at()].floats()[head], v_cols);
      const float sum = total[v_cols + 1];
      for (int c = 0; c < v_cols; c += 16)
        V::store(total + c, V::div(V::load(total + c), V::set1(sum)));
      if (rotation > 0) hadamard(total, op.kv.v_dim, rotation);
      if (a.out[0].data)
        for (int c = 0; c < op.kv.v_dim; ++c)
          a.out[0].out_row(t)[head * op.kv.v_dim + c] = total[c];
      if (a.acts.data) quantize_row<V>(total, a.acts, t, head * op.kv.v_dim / 32, op.kv.v_dim / 32);
    }
  }
};

}  // namespace
}  // namespace chaski
