// Attention over KV pages, flash style (Dao et al. 2022): scores of 256 positions at a time, their
// soft-max kept as (weighed values, maximum, sum) and merged chunk by chunk, first to last. Chunks
// start at multiples of 256 positions, not where threads or batches happen to cut, so a token's
// result depends on its sequence alone.
//
// Query heads that share a KV head, and neighbouring tokens of a prompt, go through a page
// together, up to 16 queries: the K page is the weight strip, the queries are the tokens of
// strip.h. A prompt has enough of these groups for all threads. A decode step has one group a KV
// head, so there a unit of work is a chunk of it, and whoever finishes a group's last chunk merges
// them, in order.
#pragma once
#include "ggml-like-tensor/cpu/quantize.h"
#include "ggml-like-tensor/cpu/values.h"
#include "ggml-like-tensor/ops/attention.h"
#include "ggml-like-tensor/ops/hadamard.h"

namespace chaski {
namespace {

constexpr int kQueries = kGroup;

// A run of tokens of one sequence in neighbouring cells, times the query heads [first_head,
// first_head + group) of one KV head.
struct QueryBlock {
  int64_t token;  // first
  int tokens, group, kv_head, first_head;
  int slot;  // of query 0 among all queries of the run and KV head
  int count() const { return tokens * group; }
};

template <class V>
struct CpuKernel<Attention, V> {
  using F = typename V::F;

  // Per thread. A part is one query's share of a chunk: v_cols sums, the maximum, the sum of
  // weights.
  struct Work {
    // (kQueries, kChunk), (kQueries, k_cols), (kQueries, part_floats) twice
    float *scores, *q, *parts, *totals;
    Act* acts;  // (k_cols / 32, count)
  };
  static int64_t part_floats(const KvLayout& l) { return l.v_cols() + 16; }
  static const KvView& view(const Attention& op, const OpArgs& a) {
    return a.where->states.paged[op.state];
  }
  static const KvLayout& layout(const Attention& op, const OpArgs& a) { return view(op, a).layout; }

  static int tokens_per_run(const Attention& op) {
    const int group = op.group();
    return group >= kQueries ? 1 : kQueries / group;
  }
  static int64_t runs(const Attention& op, const OpArgs& a) {
    const int per = tokens_per_run(op);
    return (a.in[0].shape.rows + per - 1) / per;
  }
  // Chunks as units of their own; 1: a unit walks all of them.
  static int64_t pieces(const Attention& op, const OpArgs& a) {
    if (a.in[0].shape.rows > kGroup || runs(op, a) * op.kv.heads > kSharedCounters) return 1;
    int32_t last = 0;
    for (int32_t cell : a.batch->cells) last = cell > last ? cell : last;
    return last / kChunk + 1;
  }
  static int64_t units(const Attention& op, const OpArgs& a) {
    return runs(op, a) * op.kv.heads * pieces(op, a);
  }
  // Some chunks together: queries are quantized once for them.
  static int64_t grain(const Attention& op, const OpArgs& a) {
    const int64_t share = units(op, a) / 32;
    return pieces(op, a) == 1 || share < 1 ? 1 : share < 4 ? share : 4;
  }
  static size_t scratch(const Attention& op, const OpArgs& a) {
    const KvLayout& l = layout(op, a);
    return kQueries * sizeof(float) * (kChunk + l.k_cols() + 2 * part_floats(l)) +
           kQueries * sizeof(Act) * (l.k_cols() / 32 + 1);
  }
  static int64_t queries_per_run(const Attention& op) { return tokens_per_run(op) * op.group(); }
  static size_t shared(const Attention& op, const OpArgs& a) {
    return pieces(op, a) == 1
               ? 0
               : size_t(units(op, a) * queries_per_run(op) * part_floats(layout(op, a))) *
                     sizeof(float);
  }

  static void run(const Attention& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const KvLayout& l = layout(op, a);
    Work w;
    w.scores = reinterpret_cast<float*>(scratch.own);
    w.q = w.scores + kQueries * kChunk;
    w.parts = w.q + kQueries * l.k_cols();
    w.totals = w.parts + kQueries * part_floats(l);
    w.acts = reinterpret_cast<Act*>(w.totals + kQueries * part_floats(l));
    const int64_t n = pieces(op, a);
    for (int64_t u = first; u < last;) {
      const int64_t group = u / n, chunk = u % n, end = n - chunk < last - u ? n : chunk + last - u;
      if (n == 1)
        each_block(op, a, group, [&](const QueryBlock& b) { whole(op, a, b, w); });
      else
        some_chunks(op, a, w, group, chunk, end, n, scratch);
      u += end - chunk;
    }
  }

  // Chunks [from, to) of n; the last of them to be done, by whomever, merges all.
  static void some_chunks(const Attention& op, const OpArgs& a, const Work& w, int64_t group,
                          int64_t from, int64_t to, int64_t n, const Scratch& scratch) {
    const int64_t stride = part_floats(layout(op, a)), size = queries_per_run(op) * stride;
    float* parts = reinterpret_cast<float*>(scratch.shared) + group * n * size;
    each_block(op, a, group, [&](const QueryBlock& b) {
      load_queries(op, a, b, w);
      const int64_t begin = first_chunk(op, a, b) > from ? first_chunk(op, a, b) : from,
                    end = last_chunk(a, b) + 1 < to ? last_chunk(a, b) + 1 : to;
      for (int64_t c = begin; c < end; ++c)
        one_chunk(op, a, b, w, c, parts + c * size + b.slot * stride);
    });
    const uint32_t mine = uint32_t(to - from);
    if (__atomic_add_fetch(&scratch.counters[group], mine, __ATOMIC_ACQ_REL) < uint32_t(n)) return;
    __atomic_store_n(&scratch.counters[group], 0, __ATOMIC_RELAXED);
    each_block(op, a, group, [&](const QueryBlock& b) {
      clear_totals(op, a, b, w);
      for (int64_t c = first_chunk(op, a, b); c <= last_chunk(a, b); ++c)
        merge(op, a, b, w, c, parts + c * size + b.slot * stride);
      write(op, a, b, w);
    });
  }

  // Tokens [run * per, (run + 1) * per) of the batch, cut where the sequence changes; heads of one
  // KV head, cut at 16.
  template <class Fn>
  static void each_block(const Attention& op, const OpArgs& a, int64_t run_and_head, Fn fn) {
    const int per = tokens_per_run(op), group = op.group(),
              kv_head = int(run_and_head % op.kv.heads);
    const int64_t begin = run_and_head / op.kv.heads * per;
    const int64_t end = begin + per < a.in[0].shape.rows ? begin + per : a.in[0].shape.rows;
    for (int64_t t = begin; t < end;) {
      int64_t stop = t + 1;
      while (stop < end && a.batch->sequences[stop] == a.batch->sequences[t]) ++stop;
      for (int h = 0; h < group; h += kQueries) {
        const int heads = group - h < kQueries ? group - h : kQueries;
        fn(QueryBlock{t, int(stop - t), heads, kv_head, kv_head * group + h,
                      int(t - begin) * group + h});
      }
      t = stop;
    }
  }
  static int64_t first_chunk(const Attention& op, const OpArgs& a, const QueryBlock& b) {
    return op.kv.first_seen(a.batch->cells[b.token]) / kChunk;
  }
  static int64_t last_chunk(const OpArgs& a, const QueryBlock& b) {
    return a.batch->cells[b.token + b.tokens - 1] / kChunk;
  }

  static void whole(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w) {
    load_queries(op, a, b, w);
    clear_totals(op, a, b, w);
    for (int64_t c = first_chunk(op, a, b); c <= last_chunk(a, b); ++c) {
      one_chunk(op, a, b, w, c, w.parts);
      merge(op, a, b, w, c, w.parts);
    }
    write(op, a, b, w);
  }

  static void load_queries(const Attention& op, const OpArgs& a, const QueryBlock& b,
                           const Work& w) {
    const KvLayout& l = layout(op, a);
    for (int q = 0; q < b.count(); ++q) {
      const float* from =
          a.in[0].row(b.token + q / b.group) + (b.first_head + q % b.group) * op.kv.k_dim;
      float* to = w.q + q * l.k_cols();
      for (int c = 0; c < l.k_cols(); ++c) to[c] = c < op.kv.k_dim ? from[c] : 0;
      KvFormats::with(l.format, [&]<class F>(F) {
        if constexpr (PageOf<F>::kRotated) hadamard(to, op.kv.k_dim);
      });
      if (l.blocks())
        for (int i = 0; i < l.k_cols() / 32; ++i)
          quantize_block<V>(to + 32 * i, w.acts[i * b.count() + q]);
    }
  }

  // What the token of a cell sees of a chunk: cells low..high, none if high < low.
  struct Seen {
    int64_t low, high;
  };
  static Seen seen(const Attention& op, int64_t cell, int64_t chunk) {
    const int64_t start = chunk * kChunk, first = op.kv.first_seen(cell);
    return {first > start ? first : start, cell < start + kChunk - 1 ? cell : start + kChunk - 1};
  }

  // Scores, their soft-max and the weighed values of one chunk into `parts`; those of a token that
  // sees nothing of it stay unwritten.
  static void one_chunk(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w,
                        int64_t chunk, float* parts) {
    const KvView& kv = view(op, a);
    const HeadPages pages(kv, b.kv_head, a.batch->table(kv, b.token));
    const int64_t start = chunk * kChunk, stride = part_floats(layout(op, a));
    const int64_t from = seen(op, a.batch->cells[b.token], chunk).low / kPage;
    const int64_t to = seen(op, a.batch->cells[b.token + b.tokens - 1], chunk).high / kPage + 1;
    score_pages(op, a, b, w, pages, start, from, to);
    for (int t = 0; t < b.tokens; ++t) {
      const Seen s = seen(op, a.batch->cells[b.token + t], chunk);
      if (s.high < s.low) continue;
      float *scores = w.scores + t * b.group * kChunk, *sums = parts + t * b.group * stride;
      for (int g = 0; g < b.group; ++g)
        soft_max(scores + g * kChunk, from * kPage - start, to * kPage - start,
                 sums + g * stride + pages.v_cols);
      weigh_values<V>(pages, {scores, start, s.low, s.high, sums, stride}, b.group);
    }
  }

  // scores[q][cell - start] of pages [from, to), -inf where the query must not look.
  static void score_pages(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w,
                          const HeadPages& pages, int64_t start, int64_t from, int64_t to) {
    const StripInput<V> in{w.acts, b.count(), w.q, pages.k_cols, pages.k_cols};
    const int64_t blocks = (pages.k_cols + 31) / 32;
    float slopes[kQueries];
    for (int q = 0; q < b.count() && op.max_bias > 0; ++q)
      slopes[q] = op.slope(b.first_head + q % b.group);
    for (int64_t page = from; page < to; ++page) {
      F acc[kQueries];
      for (int q = 0; q < b.count(); ++q) acc[q] = V::zero();
      const std::byte* tile = pages.keys(page);
      KvFormats::with(pages.format,
                      [&]<class F>(F) { strip_times<V, F>(tile, 0, blocks, in, b.count(), acc); });
      for (int q = 0; q < b.count(); ++q) {
        const int64_t cell = a.batch->cells[b.token + q / b.group], at = page * kPage;
        F score = finish_score(op, acc[q]);
        if (op.max_bias > 0)
          score = V::fma(V::add(lane_numbers<V>(), V::set1(float(at - cell))), V::set1(slopes[q]),
                         score);
        const F seen = only<V>(score, op.kv.first_seen(cell) - at, cell - at, V::set1(-INFINITY));
        V::store(w.scores + q * kChunk + (at - start), seen);
      }
    }
  }
  static F finish_score(const Attention& op, F dot) {
    const F score = V::mul(dot, V::set1(op.scale));
    return op.soft_cap > 0
               ? V::mul(V::set1(op.soft_cap), tanh<V>(V::div(score, V::set1(op.soft_cap))))
               : score;
  }

  // Scores to weights e^(s - maximum) in place; 16 partial sums, one to a lane.
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
    const KvLayout& l = layout(op, a);
    for (int64_t i = 0; i < b.count() * part_floats(l); ++i) w.totals[i] = 0;
    for (int q = 0; q < b.count(); ++q) w.totals[q * part_floats(l) + l.v_cols()] = -INFINITY;
  }
  static void merge(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w,
                    int64_t chunk, const float* parts) {
    const KvLayout& l = layout(op, a);
    for (int q = 0; q < b.count(); ++q) {
      const Seen s = seen(op, a.batch->cells[b.token + q / b.group], chunk);
      if (s.low <= s.high)
        merge_query(w.totals + q * part_floats(l), parts + q * part_floats(l), l.v_cols());
    }
  }
  static void merge_query(float* total, const float* part, int v_cols) {
    float *maximum = total + v_cols, *sum = maximum + 1;
    const float most = part[v_cols], together = *maximum > most ? *maximum : most;
    alignas(64) float scale[16] = {*maximum - together, most - together};
    V::store(scale, exp<V>(V::load(scale)));
    *maximum = together;
    *sum = *sum * scale[0] + part[v_cols + 1] * scale[1];
    for (int c = 0; c < v_cols; c += 16)
      V::store(total + c, V::fma(V::load(part + c), V::set1(scale[1]),
                                 V::mul(V::load(total + c), V::set1(scale[0]))));
  }

  // A chunk of one position whose value is 0.
  static void add_sink(float* total, float sink, int v_cols) {
    float *maximum = total + v_cols, *sum = maximum + 1;
    const float together = *maximum > sink ? *maximum : sink;
    alignas(64) float scale[16] = {*maximum - together, sink - together};
    V::store(scale, exp<V>(V::load(scale)));
    *sum = *sum * scale[0] + scale[1];
    for (int c = 0; c < v_cols; c += 16)
      V::store(total + c, V::mul(V::load(total + c), V::set1(scale[0])));
  }

  static void write(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w) {
    const KvLayout& l = layout(op, a);
    for (int q = 0; q < b.count(); ++q) {
      const int64_t t = b.token + q / b.group, head = b.first_head + q % b.group;
      float* total = w.totals + q * part_floats(l);
      if (op.sinks) add_sink(total, a.in[1].floats()[head], l.v_cols());
      const float sum = total[l.v_cols() + 1];
      for (int c = 0; c < l.v_cols(); c += 16)
        V::store(total + c, V::div(V::load(total + c), V::set1(sum)));
      if (a.out[0].data)
        for (int c = 0; c < op.kv.v_dim; ++c)
          a.out[0].out_row(t)[head * op.kv.v_dim + c] = total[c];
      if (a.acts.data) quantize_row<V>(total, a.acts, t, head * op.kv.v_dim / 32, op.kv.v_dim / 32);
    }
  }
};

}  // namespace
}  // namespace chaski
