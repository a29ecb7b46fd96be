// Attention over KV pages, flash style (Dao et al. 2022): scores of 256 positions at a time, their soft-max kept as (maximum, sum,
// weighted values) and merged chunk by chunk. Chunks start at multiples of 256 positions, not where threads or batches happen to cut,
// so a token's result depends on its sequence alone. Query heads that share a key head, and neighbouring tokens of a prompt, go
// through one K page together (up to 16 queries): the page is the weight strip, the queries are the tokens of strip.h.
#pragma once
#include "ggml-like-tensor/cpu/quantize.h"
#include "ggml-like-tensor/cpu/strip.h"
#include "ggml-like-tensor/ops/attention.h"

namespace chaski {
namespace {

constexpr int kChunk = 256;  // positions
constexpr int kQueries = kGroup;

// A run of tokens of one sequence at neighbouring positions, times the query heads [first_head, first_head + group) of one KV head.
struct QueryBlock {
  int64_t token;  // first
  int tokens, group, kv_head, first_head;
  int count() const { return tokens * group; }
};

template <class V>
struct AttentionKernel {
  using F = typename V::F;

  // Per thread: queries (as floats, or quantized), scores, values of one chunk and so far.
  struct Scratch {
    float maximum[kQueries], sum[kQueries];
    float scores[kQueries][kChunk];
  };
  struct Work {
    Scratch* s;
    float *q, *chunk, *total;  // (kQueries, k_cols), (kQueries, v_cols) twice
    Act* acts;                 // (k_cols / 32, count)
  };

  static int tokens_per_run(const Attention& op) {
    const int group = op.heads / op.kv_heads;
    return group >= kQueries ? 1 : kQueries / group;
  }
  static int64_t runs(const Attention& op, const OpArgs& a) {
    const int per = tokens_per_run(op);
    return (a.in[0].shape.rows + per - 1) / per;
  }
  static int64_t units(const Attention& op, const OpArgs& a) { return runs(op, a) * op.kv_heads; }
  static int64_t grain(const Attention&, const OpArgs&) { return 1; }
  static size_t scratch(const Attention&, const OpArgs& a) {
    const KvLayout& l = a.batch->kv.layout;
    return sizeof(Scratch) + kQueries * sizeof(float) * (l.k_cols() + 2 * l.v_cols()) + kQueries * sizeof(Act) * (l.k_cols() / 32 + 1);
  }

  static void run(const Attention& op, const OpArgs& a, int64_t first, int64_t last, std::byte* scratch) {
    const KvLayout& l = a.batch->kv.layout;
    Work w;
    w.s = reinterpret_cast<Scratch*>(scratch);
    w.q = reinterpret_cast<float*>(w.s + 1);
    w.chunk = w.q + kQueries * l.k_cols();
    w.total = w.chunk + kQueries * l.v_cols();
    w.acts = reinterpret_cast<Act*>(w.total + kQueries * l.v_cols());
    for (int64_t u = first; u < last; ++u) one_run(op, a, u / op.kv_heads, int(u % op.kv_heads), w);
  }

  // Tokens [run * per, (run + 1) * per) of the batch, cut where the sequence changes.
  static void one_run(const Attention& op, const OpArgs& a, int64_t run, int kv_head, const Work& w) {
    const int per = tokens_per_run(op), group = op.heads / op.kv_heads;
    const int64_t end = (run + 1) * per < a.in[0].shape.rows ? (run + 1) * per : a.in[0].shape.rows;
    for (int64_t t = run * per; t < end;) {
      int64_t stop = t + 1;
      while (stop < end && a.batch->tables[stop] == a.batch->tables[t]) ++stop;
      for (int h = 0; h < group; h += kQueries) {
        const int heads = group - h < kQueries ? group - h : kQueries;
        attend(op, a, {t, int(stop - t), heads, kv_head, kv_head * group + h}, w);
      }
      t = stop;
    }
  }

  static void attend(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w) {
    const int64_t first = op.first_position(a.batch->positions[b.token]), last = a.batch->positions[b.token + b.tokens - 1];
    const int v_cols = a.batch->kv.layout.v_cols();
    load_queries(op, a, b, w);
    for (int q = 0; q < b.count(); ++q) w.s->maximum[q] = -INFINITY, w.s->sum[q] = 0;
    for (int64_t i = 0; i < b.count() * v_cols; ++i) w.total[i] = 0;
    for (int64_t start = first / kChunk * kChunk; start <= last; start += kChunk) {
      const int64_t from = (first > start ? first : start) / kPage, to = (last < start + kChunk - 1 ? last : start + kChunk - 1) / kPage + 1;
      score_chunk(op, a, b, w, start, from, to);
      for (int t = 0; t < b.tokens; ++t) {
        const int64_t p = a.batch->positions[b.token + t], seen = op.first_position(p);
        const int64_t low = seen > start ? seen : start, high = p < start + kChunk - 1 ? p : start + kChunk - 1;
        if (low <= high) merge_token(op, a, b, w, t, start, from, to, low, high);
      }
    }
    write(op, a, b, w);
  }

  static void load_queries(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w) {
    const KvLayout& l = a.batch->kv.layout;
    for (int q = 0; q < b.count(); ++q) {
      const float* from = a.in[0].row(b.token + q / b.group) + (b.first_head + q % b.group) * op.head_dim;
      float* to = w.q + q * l.k_cols();
      for (int c = 0; c < l.k_cols(); ++c) to[c] = c < op.head_dim ? from[c] : 0;
      if (l.format == Format::q8)
        for (int i = 0; i < l.k_cols() / 32; ++i) quantize_block<V>(to + 32 * i, w.acts[i * b.count() + q]);
    }
  }

  // scores[q][position - start] of pages [from, to), -inf where the query must not look.
  static void score_chunk(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w, int64_t start, int64_t from,
                          int64_t to) {
    const KvLayout& l = a.batch->kv.layout;
    const StripInput<V> in{w.acts, b.count(), w.q, l.k_cols(), l.k_cols()};
    const int64_t blocks = (l.k_cols() + 31) / 32;
    for (int64_t page = from; page < to; ++page) {
      const std::byte* tile = a.batch->kv.page(a.batch->tables[b.token][page]) + l.k_offset(op.layer, b.kv_head);
      F acc[kQueries];
      for (int q = 0; q < b.count(); ++q) acc[q] = V::zero();
      if (l.format == Format::q8)
        strip_times<V, Q8>(tile, 0, blocks, in, b.count(), acc);
      else if (l.format == Format::f32)
        strip_times<V, F32>(tile, 0, blocks, in, b.count(), acc);
      else
        strip_times<V, F16>(tile, 0, blocks, in, b.count(), acc);
      for (int q = 0; q < b.count(); ++q) {
        const int64_t p = a.batch->positions[b.token + q / b.group];
        V::store(w.s->scores[q] + (page * kPage - start), masked(finish_score(op, acc[q]), page * kPage, op.first_position(p), p));
      }
    }
  }
  static F finish_score(const Attention& op, F dot) {
    const F score = V::mul(dot, V::set1(op.scale));
    return op.soft_cap > 0 ? V::mul(V::set1(op.soft_cap), tanh<V>(V::div(score, V::set1(op.soft_cap)))) : score;
  }
  static F masked(F score, int64_t page_start, int64_t first, int64_t last) {
    if (page_start >= first && page_start + kPage - 1 <= last) return score;
    alignas(64) static constexpr float kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const F lane = V::load(kLane), never = V::set1(-INFINITY);
    score = V::where_less(lane, V::set1(float(first - page_start)), never, score);
    return V::where_less(V::set1(float(last - page_start)), lane, never, score);
  }

  // One token's queries: soft-max over the chunk, weighted values of positions [low, high], then into the running total.
  static void merge_token(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w, int t, int64_t start, int64_t from,
                          int64_t to, int64_t low, int64_t high) {
    const int v_cols = a.batch->kv.layout.v_cols();
    float most[kQueries], sum[kQueries];
    for (int g = 0; g < b.group; ++g) soft_max(w.s->scores[t * b.group + g], (from * kPage - start), (to * kPage - start), most[g], sum[g]);
    weigh_values(op, a, b, w, t, start, low, high);
    for (int g = 0; g < b.group; ++g) {
      const int q = t * b.group + g;
      const float together = w.s->maximum[q] > most[g] ? w.s->maximum[q] : most[g];
      alignas(64) float scale[16] = {w.s->maximum[q] - together, most[g] - together};
      V::store(scale, exp<V>(V::load(scale)));
      w.s->maximum[q] = together;
      w.s->sum[q] = w.s->sum[q] * scale[0] + sum[g] * scale[1];
      for (int c = 0; c < v_cols; c += 16) {
        float* total = w.total + q * v_cols + c;
        const F old = V::mul(V::load(total), V::set1(scale[0]));
        V::store(total, V::fma(V::load(w.chunk + g * v_cols + c), V::set1(scale[1]), old));
      }
    }
  }
  // Scores to weights e^(s - max) in place; 16 partial sums, one to a lane.
  static void soft_max(float* scores, int64_t from, int64_t to, float& most, float& sum) {
    F m = V::set1(-INFINITY), s = V::zero();
    for (int64_t i = from; i < to; i += 16) m = V::max(V::load(scores + i), m);
    most = V::maximum(m);
    for (int64_t i = from; i < to; i += 16) {
      const F e = exp<V>(V::sub(V::load(scores + i), V::set1(most)));
      V::store(scores + i, e);
      s = V::add(s, e);
    }
    sum = V::sum(s);
  }

  // chunk[g][c] = sum over positions [low, high] of weight * value, position after position; N queries and C vectors of 16 channels at
  // a time, so that there are enough independent sums.
  static void weigh_values(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w, int t, int64_t start, int64_t low,
                           int64_t high) {
    const KvLayout& l = a.batch->kv.layout;
    const int vectors = l.v_cols() / 16;
    in_pieces<8>(b.group, [&]<int N>(int g) {
      constexpr int kC = N >= 8 ? 1 : N >= 4 ? 2 : 4;
      int c = 0;
      for (; c + kC <= vectors; c += kC) values<N, kC>(op, a, b, w, t, g, c, start, low, high);
      for (; c < vectors; ++c) values<N, 1>(op, a, b, w, t, g, c, start, low, high);
    });
  }
  template <int N, int C>
  static void values(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w, int t, int g, int c, int64_t start,
                     int64_t low, int64_t high) {
    const KvLayout& l = a.batch->kv.layout;
    const int v_cols = l.v_cols();
    const float* weights = w.s->scores[t * b.group + g];
    F acc[N][C];
    for (int n = 0; n < N; ++n)
      for (int k = 0; k < C; ++k) acc[n][k] = V::zero();
    for (int64_t p = low; p <= high;) {
      const std::byte* rows = a.batch->kv.page(a.batch->tables[b.token][p / kPage]) + l.v_offset(op.layer, b.kv_head);
      const auto* half = reinterpret_cast<const uint16_t*>(rows);
      const auto* bytes = reinterpret_cast<const int8_t*>(rows);
      const auto* scales = reinterpret_cast<const uint16_t*>(rows + size_t(kPage) * v_cols);
      float scale[kPage * kMaxHeadDim / 32];
      if (l.format == Format::q8)
        for (int i = 0; i < v_cols / 32; ++i) V::store(scale + 16 * i, V::load_f16(scales + 16 * i));
      for (const int64_t end = (p / kPage + 1) * kPage; p < end && p <= high; ++p) {
        const int64_t slot = p % kPage;
#pragma GCC unroll 4
        for (int k = 0; k < C; ++k) {
          const int channel = 16 * (c + k);
          const F v = l.format == Format::f16   ? V::load_f16(half + slot * v_cols + channel)
                      : l.format == Format::f32 ? V::load(reinterpret_cast<const float*>(rows) + slot * v_cols + channel)
                                                : V::mul(V::to_float(V::load_i8(bytes + slot * v_cols + channel)),
                                                         V::set1(scale[slot * (v_cols / 32) + channel / 32]));
#pragma GCC unroll 8
          for (int n = 0; n < N; ++n) acc[n][k] = V::fma(v, V::set1(weights[n * kChunk + (p - start)]), acc[n][k]);
        }
      }
    }
    for (int n = 0; n < N; ++n)
      for (int k = 0; k < C; ++k) V::store(w.chunk + (g + n) * v_cols + 16 * (c + k), acc[n][k]);
  }

  static void write(const Attention& op, const OpArgs& a, const QueryBlock& b, const Work& w) {
    const int v_cols = a.batch->kv.layout.v_cols();
    for (int q = 0; q < b.count(); ++q) {
      const int64_t t = b.token + q / b.group, head = b.first_head + q % b.group;
      float* total = w.total + q * v_cols;
      for (int c = 0; c < v_cols; c += 16) V::store(total + c, V::div(V::load(total + c), V::set1(w.s->sum[q])));
      if (a.out[0].data)
        for (int c = 0; c < op.head_dim; ++c) a.out[0].out_row(t)[head * op.head_dim + c] = total[c];
      if (a.acts.data) quantize_row<V>(total, a.acts, t, head * op.head_dim / 32, op.head_dim / 32);
    }
  }
};

}  // namespace
}  // namespace chaski
