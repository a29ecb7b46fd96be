// DeepSeek sparse attention: the lightning indexer, which chooses a token's cells, and attention
// over them. Scores, soft-max and sums of values are those of attention.h.
#pragma once
#include "ggml-like-tensor/cpu/attention.h"
#include "ggml-like-tensor/ops/lightning_index.h"
#include "ggml-like-tensor/ops/sparse_attention.h"

namespace chaski {
namespace {

// With few tokens a unit is a token and a chunk of 256 cells, and the thread that scores the last
// of a token's chunks chooses. Otherwise a unit is a token.
template <class V>
struct CpuKernel<LightningIndex, V> {
  using Plain = CpuKernel<Attention, V>;

  static bool by_chunks(const OpArgs& a) { return a.in[0].shape.rows <= kGroup; }
  static int64_t room(const OpArgs& a) { return Plain::chunks(a) * kChunk; }  // scores of a token
  static int64_t units(const LightningIndex&, const OpArgs& a) {
    return a.in[0].shape.rows * (by_chunks(a) ? Plain::chunks(a) : 1);
  }
  static int64_t grain(const LightningIndex&, const OpArgs&) { return 1; }
  static size_t scratch(const LightningIndex& op, const OpArgs& a) {
    return Plain::scratch(op.attention(), a) + (by_chunks(a) ? 0 : room(a) * sizeof(float));
  }
  static size_t shared(const LightningIndex&, const OpArgs& a) {
    return by_chunks(a) ? a.in[0].shape.rows * room(a) * sizeof(float) : 0;
  }

  static void run(const LightningIndex& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const Attention plain = op.attention();
    const typename Plain::Work w = Plain::work(plain, a, scratch.own, scratch.formats);
    auto* const own = reinterpret_cast<float*>(scratch.own + Plain::scratch(plain, a));
    const int64_t of_token = by_chunks(a) ? Plain::chunks(a) : 1;
    for (int64_t u = first; u < last; ++u) {
      const int64_t t = u / of_token, seen = a.batch->cells[t] + 1, end = (seen - 1) / kChunk + 1;
      if (seen <= op.most) {
        if (u % of_token == 0) op.choose(nullptr, seen, a.out[0].out_ints(t));
      } else if (!by_chunks(a)) {
        for (int64_t c = 0; c < end; ++c) score_chunk(plain, a, w, t, c, own + c * kChunk);
        op.choose(own, seen, a.out[0].out_ints(t));
      } else if (const int64_t c = u % of_token; c < end) {
        float* const scores = reinterpret_cast<float*>(scratch.shared) + t * room(a);
        score_chunk(plain, a, w, t, c, scores + c * kChunk);
        if (__atomic_add_fetch(scratch.counters + t, 1, __ATOMIC_ACQ_REL) < uint32_t(end)) continue;
        __atomic_store_n(scratch.counters + t, 0, __ATOMIC_RELAXED);
        op.choose(scores, seen, a.out[0].out_ints(t));
      }
    }
  }

  // Writes the scores of a token's cells in a chunk.
  static void score_chunk(const Attention& op, const OpArgs& a, const typename Plain::Work& w,
                          int64_t t, int64_t chunk, float* scores) {
    const KvView& view = Plain::view(op, a);
    const HeadPages pages(view, 0, a.batch->table(view, t) + chunk * (kChunk / kPage));
    const int64_t left = a.batch->cells[t] - chunk * kChunk,
                  cells = left < kChunk ? left / kPage * kPage + kPage : kChunk;
    for (int64_t i = 0; i < cells; i += 16) V::store(scores + i, V::zero());
    for (int piece = 0; piece < Plain::blocks_per_token(op); ++piece) {
      QueryBlock b = Plain::of_heads(op, 0, piece);
      Plain::add(b, t, a.batch->cells[t], a.batch->cells[t]);
      Plain::load_queries(op, a, b, w);
      Plain::score_pages(op, b, w, pages, chunk * kChunk, 0, cells / kPage);
      for (int q = 0; q < b.heads; ++q) {
        const auto weight = V::set1(a.in[1].row(t)[b.first_head + q]);
        for (int64_t i = 0; i < cells; i += 16) {
          const auto dot = V::load(w.scores + q * kChunk + i);
          const auto positive = V::where_less(dot, V::zero(), V::zero(), dot);  // a NaN stays
          V::store(scores + i, V::fma(positive, weight, V::load(scores + i)));
        }
      }
    }
  }
};

// A unit is a token and a KV head, and with few tokens only 16 of the query heads. The chosen keys
// of a chunk are copied next to each other, so that they are scored and weighed like a chunk of the
// cache.
template <class V>
struct CpuKernel<SparseAttention, V> {
  using Plain = CpuKernel<Attention, V>;
  using Work = typename Plain::Work;

  // Blocks of 16 heads in a unit.
  static int64_t blocks(const SparseAttention& op, const OpArgs& a) {
    return a.in[0].shape.rows > kGroup ? Plain::blocks_per_token(op.attention()) : 1;
  }
  static int64_t units_of_token(const SparseAttention& op, const OpArgs& a) {
    return op.kv.heads * (Plain::blocks_per_token(op.attention()) / blocks(op, a));
  }
  static int64_t units(const SparseAttention& op, const OpArgs& a) {
    return a.in[0].shape.rows * units_of_token(op, a);
  }
  static int64_t grain(const SparseAttention&, const OpArgs&) { return 1; }
  static size_t chunk_bytes(const SparseAttention& op, const OpArgs& a) {
    return kChunk / kPage * Plain::layout(op.attention(), a).k_bytes();
  }
  static int64_t total_floats(const SparseAttention& op, const OpArgs& a) {  // of a block of heads
    return kQueries * Plain::part_floats(Plain::layout(op.attention(), a));
  }
  static size_t scratch(const SparseAttention& op, const OpArgs& a) {
    return chunk_bytes(op, a) + Plain::scratch(op.attention(), a) +
           blocks(op, a) * total_floats(op, a) * sizeof(float);
  }

  static void run(const SparseAttention& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const Attention plain = op.attention();
    std::byte* const memory = scratch.own + chunk_bytes(op, a);
    const Work w = Plain::work(plain, a, memory, scratch.formats);
    auto* const totals = reinterpret_cast<float*>(memory + Plain::scratch(plain, a));
    const int64_t of_token = units_of_token(op, a), of_head = of_token / op.kv.heads;
    for (int64_t u = first; u < last; ++u) {
      const int head = int(u % of_token / of_head), n_blocks = int(blocks(op, a)),
                from = int(u % of_head) * n_blocks;
      // Calls fn with the block's queries and its totals.
      const auto each_block = [&](auto fn) {
        for (int i = 0; i < n_blocks; ++i) {
          QueryBlock b = Plain::of_heads(plain, head, from + i);
          const int64_t cell = op.count(a, u / of_token) - 1;
          Plain::add(b, u / of_token, cell, cell);
          Work own = w;
          own.totals = totals + i * total_floats(op, a);
          fn(b, own);
        }
      };
      attend(op, a, u / of_token, head, scratch.own, each_block);
    }
  }
  template <class Blocks>
  static void attend(const SparseAttention& op, const OpArgs& a, int64_t t, int head,
                     std::byte* chunk, Blocks each_block) {
    const Attention plain = op.attention();
    const KvView& view = Plain::view(plain, a);
    const int32_t* const table = a.batch->table(view, t);
    const int64_t n = op.count(a, t);
    each_block([&](const QueryBlock& b, const Work& w) { Plain::clear_totals(plain, a, b, w); });
    for (int64_t c = 0; c * kChunk < n; ++c) {
      const int64_t at = c * kChunk, cells = n - at < kChunk ? n - at : kChunk;
      if (!op.chose_all(a, t)) op.gather(view, head, table, a.in[1].ints(t) + at, cells, chunk);
      const HeadPages pages = op.chose_all(a, t) ? HeadPages(view, head, table + at / kPage)
                                                 : copied_pages(chunk, view.layout);
      each_block([&](const QueryBlock& b, const Work& w) {
        Plain::load_queries(plain, a, b, w);
        Plain::chunk_of_pages(plain, b, w, pages, c, 0, (cells + kPage - 1) / kPage * kPage);
        Plain::merge(plain, a, b, w, c);
      });
    }
    each_block([&](const QueryBlock& b, const Work& w) { Plain::write(plain, a, b, w); });
  }
};

}  // namespace
}  // namespace chaski
