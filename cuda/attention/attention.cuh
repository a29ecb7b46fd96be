// One block's share of attention over KV pages, on tensor cores. Flash style (Dao et al. 2022):
// each chunk of 256 positions gives each query a maximum, a sum and weighted values. Chunks are
// merged from the first to the last.
//
// The bits of a query's result depend on its sequence alone:
//   * Chunks start at multiples of 256 positions.
//   * mma m16n8k16 with f32 sums adds a score 16 channels at a time and a value 16 positions at a
//     time. A query is one column of the mma, independent of the other columns.
//   * Maximum and sum are reduced over the block's warps and lanes by position. A position that a
//     query must not see has weight zero.
//
// A block takes up to 32 queries that share a KV head: the heads of a group, times neighbouring
// tokens of one sequence.
//
// Steps of a chunk:
//   1. scores      a warp takes two pages, all queries:
//                  (16 positions x channels) (channels x 8 queries)
//   2. soft-max    in the registers of the scores; rounded weights go to shared memory
//   3. values      a warp takes 16 or 32 channels:
//                  (16 channels x positions) (positions x 8 queries)
// Keys and values arrive by asynchronous copies of 16 bytes, in the layout of the pages, through a
// ring of stages (attention_stages.cuh).
//
// Rounding (kv_page.cuh). f16 and f8 pages are exact in f16. q8 pages use the product of scale and
// code, rounded to f16. For these pages a query or a weight is the sum of two f16 (22 bits), so a
// product takes two mma. Queries are scaled by a power of two to below 2, so that none overflows.
// With f32 pages, keys, values, queries and weights are two bfloat16 each (16 bits), and a product
// takes three mma. Relative squared error on the host shim: 1e-14 with f16 and f8, 4e-8 with q8,
// 6e-12 with f32. Tried: queries and weights of one f16. The error was 1e-9 for half of the mma.
// But then the activations quantized after attention got other codes than on the CPU, and the
// logits of the bundled model differed by 1e-4 instead of 1e-14.
//
// A chunk of 32 queries and 128 channels of f16 is 128 KB. It takes 1024 mma and 384 ldmatrix for
// scores, 8192 exponentials, and 1024 mma and 640 ldmatrix for values. A decode step of an 8B model
// has 4 queries a KV head. Then three quarters of the mma are idle and memory bandwidth is the
// limit.
//
// Independence of a query's bits requires two properties of the hardware. A sum of products must
// not depend on its column. A product with zero must not depend on the other, finite factor. `make
// test-cuda` checks both.
#pragma once
#include "cuda/attention/attention_stages.cuh"
#include "cuda/device/math.cuh"
#include "cuda/rows/kv_store.cuh"

namespace chaski {

// Adds the product a * b to d. Each factor is the sum of a big and a small part; the product of the
// two small parts is left out.
template <class F>
__device__ __forceinline__ void multiply(float (&d)[4], const Fragment<F>& a,
                                         const uint32_t (&b)[kParts][4], int half) {
  using P = Parts<F>;
  const uint32_t big[2] = {b[0][2 * half], b[0][2 * half + 1]};
  P::mma(d, a[0], big);
  const uint32_t small[2] = {b[1][2 * half], b[1][2 * half + 1]};
  P::mma(d, a[0], small);
  if constexpr (P::kPageParts == 2) P::mma(d, a[1], big);
}

// Attention::slope, up to the rounding of exp_fixed.
__device__ __forceinline__ float slope_of(const AttentionArgs& a, int head) {
  const int n = 1 << (31 - __clz(a.heads));
  const float step = head < n ? float(head + 1) : float(head - n) + 0.5f;
  return exp_fixed(-0.693147181f * a.max_bias * step / float(n));
}

// Loads the queries as the B operand, scaled to below 2, and fills in the other values of each
// query. One warp loads one query.
template <class F>
__device__ __forceinline__ void load_queries(const AttentionArgs& a, const QueryTile& tile,
                                             const AttentionShared<F>& s) {
  const int lane = threadIdx.x % 32;
  for (int q = warp_of_block(); q < a.queries; q += kWarps) {
    const bool real = q < tile.count();
    const float* from =
        a.q +
        (int64_t(tile.token_of(real ? q : 0)) * a.heads + tile.head_of(real ? q : 0)) * a.kv.k_dim;
    const float* scales =
        a.kv.scales && real ? a.kv.scales + tile.head_of(q) / a.group * a.kv.k_dim : nullptr;
    // Channel `first` + lane, scaled and rotated like the keys. All lanes of the warp take part.
    const auto channel = [&](int first) {
      const int c = first + lane;
      float x = real && c < a.kv.k_dim ? from[c] : 0.0f;
      if (PageOf<Plain<F>>::kRotation > 0 && scales && c < a.kv.k_dim) x *= scales[c];
      return rotate_channels<Plain<F>>(x, first, a.kv.k_dim);
    };
    float most = 0;
    for (int first = 0; first < a.kv.k_dim; first += 32)
      if (const float size = fabsf(channel(first)); size > most) most = size;
#pragma unroll
    for (int n = 16; n > 0; n /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, most, n);
      most = most > other ? most : other;
    }
    const int exponent = min(max(int(__float_as_uint(most) >> 23), 1), 253);
    const float factor = __uint_as_float(uint32_t(254 - exponent) << 23);
    for (int first = 0; first < s.k_pad; first += 32) {
      const int c = first + lane;
      uint16_t part[kParts];
      Parts<F>::split(channel(first) * factor, part);
      if (c >= s.k_pad) continue;
#pragma unroll
      for (int i = 0; i < kParts; ++i)
        s.query(i, q)[c / 16 * 16 + Keys<F>::column_of(c % 16)] = part[i];
    }
    if (lane == 0) {
      const int last = real ? a.batch.cells[tile.token_of(q)] : -1;
      s.last[q] = last, s.first[q] = real ? a.first_position(last) : 0;
      s.factor[q] = __uint_as_float(uint32_t(exponent) << 23) * (a.scale * Keys<F>::kScale);
      s.slope[q] = a.max_bias > 0 && real ? slope_of(a, tile.head_of(q)) : 0;
      s.maximum[q] = -INFINITY, s.sum[q] = 0;
      if (a.partial)
        s.partial_row[q] = a.partial_of(tile.token_of(real ? q : 0), tile.head_of(real ? q : 0));
      if (s.total_row)
        s.total_row[q] = a.totals + (int64_t(tile.token_of(real ? q : 0)) * a.heads +
                                     tile.head_of(real ? q : 0)) *
                                        a.kv.v_dim;
    }
  }
}

// Only the block that merges a tile's chunks may have totals. It waits at a barrier before the call
// and before the first use.
template <class F>
__device__ __forceinline__ void clear_totals(const AttentionArgs& a, const QueryTile& tile,
                                             const AttentionShared<F>& s) {
  for (int i = threadIdx.x; i < tile.count() * a.kv.v_dim; i += kChunk)
    s.total_of(i / a.kv.v_dim, i % a.kv.v_dim) = 0;
}

// A warp's scores of a chunk, for pages `warp` and warp + 8: [page][8 queries], in the order that
// mma leaves them.
using Scores = float[2][kMostQueries / 8][4];

// Step 1 for one slice of the channels.
template <class F>
__device__ __forceinline__ void score_slice(const QueryTile& tile, const AttentionShared<F>& s,
                                            const std::byte* stage, int slice, const PageRun& pages,
                                            Scores& scores) {
  using K = Keys<F>;
  const int lane = threadIdx.x % 32, warp = warp_of_block();
  const bool has[2] = {pages.has(warp), pages.has(warp + kWarps)};
#pragma unroll
  for (int i = 0; i < kSliceSpans<F>; ++i) {
    const int span = slice * kSliceSpans<F> + i;
    if (span * K::kSpan >= s.k_pad) break;
    Fragment<F> k[2][K::kSteps];
#pragma unroll
    for (int p = 0; p < 2; ++p)
      if (has[p]) K::load(stage + (warp + kWarps * p) * kSliceBytes<F> + i * K::kSpanBytes, k[p]);
#pragma unroll
    for (int step = 0; step < K::kSteps; ++step)
#pragma unroll
      for (int pair = 0; pair < kMostQueries / 16; ++pair) {
        if (pair >= tile.pairs()) break;
        uint32_t q[kParts][4];
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          load_matrices(q[part], s.query(part, 16 * pair + lane / 16 * 8 + lane % 8) +
                                     span * K::kSpan + 16 * step + lane / 8 % 2 * 8);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int p = 0; p < 2; ++p)
            if (has[p]) multiply<F>(scores[p][2 * pair + half], k[p][step], q, half);
      }
  }
}

// Calls f(page, eights, item, position, query) for this thread's scores, two at a time. The two are
// scores[page][eights][item] and the next item. They belong to `query` and to the query after it,
// both at this position of the chunk. `eights` counts groups of eight queries.
template <class F, class Each>
__device__ __forceinline__ void each_score(const QueryTile& tile, Each f) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = warp_of_block();
#pragma unroll
  for (int n = 0; n < kMostQueries / 8; ++n) {
    if (n / 2 >= tile.pairs()) break;
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        f(p, n, i, (warp + kWarps * p) * kPage + Keys<F>::position_of(g + 4 * i), 8 * n + 2 * t);
  }
}

// Reduces each query over the lanes of a warp by halves, into s.warps[warp][query].
template <class F, class Join>
__device__ __forceinline__ void join_lanes(const QueryTile& tile, const AttentionShared<F>& s,
                                           float (&x)[kMostQueries / 8][2], Join join) {
  const int lane = threadIdx.x % 32, warp = warp_of_block();
#pragma unroll
  for (int n = 0; n < kMostQueries / 8; ++n) {
    if (n / 2 >= tile.pairs()) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int bit = 4; bit < 32; bit *= 2)
        x[n][i] = join(x[n][i], __shfl_xor_sync(kAllLanes, x[n][i], bit));
      if (lane < 4) s.warps[warp * kMostQueries + 8 * n + 2 * lane + i] = x[n][i];
    }
  }
}
// One thread reduces over the warps, from the first to the last.
template <class F, class Join>
__device__ __forceinline__ float join_warps(const AttentionShared<F>& s, int q, Join join) {
  float x = s.warps[q];
  for (int w = 1; w < kWarps; ++w) x = join(x, s.warps[w * kMostQueries + q]);
  return x;
}

// Caps the scores, which few models do. A loop over shared memory is a tenth of the code of 32
// hyperbolic tangents in a row. `room` is free and has a float for each score.
__device__ __forceinline__ void cap_scores(float cap, int n, Scores& scores, void* room) {
  auto* const mine = static_cast<float*>(room) + threadIdx.x;
  constexpr int kOfEight = 4;  // of a page and eight queries
#pragma unroll
  for (int p = 0; p < 2; ++p)
#pragma unroll
    for (int i = 0; i < kMostQueries / 8 * kOfEight; ++i)
      if (i < n * kOfEight) mine[(2 * i + p) * kChunk] = scores[p][i / kOfEight][i % kOfEight];
#pragma unroll 1
  for (int i = 0; i < 2 * n * kOfEight; ++i) {
    float& score = mine[i * kChunk];
    score = cap * tanh_fixed(score / cap);
  }
#pragma unroll
  for (int p = 0; p < 2; ++p)
#pragma unroll
    for (int i = 0; i < kMostQueries / 8 * kOfEight; ++i)
      if (i < n * kOfEight) scores[p][i / kOfEight][i % kOfEight] = mine[(2 * i + p) * kChunk];
}

// Step 2: writes s.weights, s.chunk_maximum and s.chunk_sum. The threads that wrote the last two
// may read them at once, the other threads after a barrier. The sum adds the rounded weights. A NaN
// score gives a NaN weight.
template <class F>
__device__ __forceinline__ void soft_max(const AttentionArgs& a, const QueryTile& tile,
                                         const AttentionShared<F>& s, int chunk, Scores& scores) {
  const auto larger = [](float x, float y) { return x > y ? x : y; };
  const auto plus = [](float x, float y) { return x + y; };
  float most[kMostQueries / 8][2], sum[kMostQueries / 8][2] = {};
#pragma unroll
  for (int n = 0; n < kMostQueries / 8; ++n) most[n][0] = most[n][1] = -INFINITY;
  each_score<F>(tile, [&](int p, int n, int item, int, int query) {
#pragma unroll
    for (int i = 0; i < 2; ++i) scores[p][n][item + i] *= s.factor[query + i];
  });
  // the weights of the chunk before have been read: there was a barrier since
  if (a.soft_cap > 0) cap_scores(a.soft_cap, 2 * tile.pairs(), scores, s.weights);
  each_score<F>(tile, [&](int p, int n, int item, int at, int query) {
    const int position = chunk * kChunk + at;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int q = query + i;
      float score = scores[p][n][item + i];
      if (a.max_bias > 0) score = fmaf(s.slope[q], float(position - s.last[q]), score);
      if (position < s.first[q] || position > s.last[q]) score = -INFINITY;
      scores[p][n][item + i] = score;
      most[n][i] = larger(score, most[n][i]);
    }
  });
  join_lanes(tile, s, most, larger);
  __syncthreads();
  if (int(threadIdx.x) < a.queries)
    s.chunk_maximum[threadIdx.x] = join_warps(s, threadIdx.x, larger);
  __syncthreads();
  each_score<F>(tile, [&](int p, int n, int item, int at, int query) {
    uint32_t both[kParts] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float score = scores[p][n][item + i], x = score - s.chunk_maximum[query + i];
      uint16_t part[kParts];
      Parts<F>::split(score == -INFINITY ? 0.0f : x == x ? exp_fixed(x) : x, part);
#pragma unroll
      for (int k = 0; k < kParts; ++k)
        both[k] |= uint32_t(part[k]) << 16 * i, sum[n][i] += Parts<F>::value(part[k]);
    }
#pragma unroll
    for (int k = 0; k < kParts; ++k)
      *reinterpret_cast<uint32_t*>(s.weight(k, at) + query) = both[k];
  });
  join_lanes(tile, s, sum, plus);
  __syncthreads();
  if (int(threadIdx.x) < a.queries) s.chunk_sum[threadIdx.x] = join_warps(s, threadIdx.x, plus);
}

// How a query's total changes when a chunk is merged: factors of the total and of the chunk's
// values. A chunk of which the query sees nothing changes nothing. before: the maximum of the
// chunks before it.
struct MergeFactors {
  float maximum, keep, take;
  __device__ __forceinline__ MergeFactors(float before, float most, float sum) {
    maximum = before > most ? before : most;
    const bool any = most > -INFINITY || sum != 0;
    keep = any ? exp_fixed(before - maximum) : 1.0f;
    take = any ? exp_fixed(most - maximum) : 0.0f;
  }
};
__device__ __forceinline__ float merged_value(float total, float value, float keep, float take) {
  return take != 0.0f || keep != 1.0f ? fmaf(value, take, total * keep) : total;
}
// One thread merges the maximum and sum of a chunk.
template <class F>
__device__ __forceinline__ void merge_sums(const AttentionShared<F>& s, int q, float most,
                                           float sum) {
  const MergeFactors f(s.maximum[q], most, sum);
  s.keep[q] = f.keep, s.take[q] = f.take;
  s.sum[q] = s.sum[q] * f.keep + sum * f.take;
  s.maximum[q] = f.maximum;
}
template <class F>
__device__ __forceinline__ void merge_value(const AttentionShared<F>& s, int q, int c,
                                            float value) {
  s.total_of(q, c) = merged_value(s.total_of(q, c), value, s.keep[q], s.take[q]);
}

// Finds infinities and NaN among 16 x 16 values. A zero weight would spread them to queries that do
// not see them. So they are removed from the product. A sum in which a nonzero weight meets one is
// set to NaN afterwards.
template <class F>
struct NonFinite {
  using P = Parts<F>;
  uint32_t where[4];  // 1 or 0, as a fragment
  bool any;
  __device__ __forceinline__ explicit NonFinite(Fragment<F>& v) {
    uint32_t bad = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      where[i] = ((v[0][i] & P::kExponents) + P::kLowest) & 0x80008000, bad |= where[i];
    any = __any_sync(kAllLanes, bad != 0);
    if (!any) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t all = (where[i] >> 15) * 0xffff;
#pragma unroll
      for (int part = 0; part < P::kPageParts; ++part) v[part][i] &= ~all;
      where[i] = all & P::kOnes;
    }
  }
  __device__ __forceinline__ void mark(float (&d)[4], const uint32_t (&w)[kParts][4],
                                       int half) const {
    uint32_t weighs[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = w[0][2 * half + i];
      weighs[i] =
          ((word & 0x7fff ? 0xffffu : 0) | (word & 0x7fff0000 ? 0xffff0000u : 0)) & P::kOnes;
    }
    float met[4] = {};
    P::mma(met, where, weighs);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (met[i] > 0) d[i] = __uint_as_float(0x7fc00000);
  }
};

// The channels and queries of step 3 that belong to a warp: units of 16 kTiles channels, from
// `first` on, `step` apart. A warp takes all queries of a unit, or 16 of them if there are few
// units.
struct ValueShare {
  int first, step, from_pair, to_pair;
  __device__ __forceinline__ ValueShare(int units, int pairs) {
    const int warp = warp_of_block();
    const bool few = units <= kWarps / 2 && pairs == 2;
    step = few ? kWarps / 2 : kWarps, first = warp % step;
    from_pair = few ? warp / step : 0, to_pair = few ? from_pair + 1 : pairs;
  }
};

// Step 3: passes each result to each(query, channel, value). kUnits: units of a warp, at most.
template <int kUnits, class F, class Each>
__device__ __forceinline__ void weigh_values(const AttentionArgs& a, const QueryTile& tile,
                                             const AttentionShared<F>& s, Stages<F>& stages,
                                             const PageRun& pages, Each each) {
  using V = Values<F>;
  const int lane = threadIdx.x % 32, units = s.v_pad / (16 * V::kTiles);
  const ValueShare share(units, tile.pairs());
  float acc[kUnits][V::kTiles][kMostQueries / 8][4] = {};
  for (int page = pages.from; page < pages.to;) {
    const std::byte* rows = stages.next();
    for (const int end = min(page + s.pages_a_stage, pages.to); page < end;
         ++page, rows += V::kRows * s.row_stride) {
      uint32_t w[kMostQueries / 16][kParts][4];
#pragma unroll
      for (int pair = 0; pair < kMostQueries / 16; ++pair)
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          if (pair >= share.from_pair && pair < share.to_pair)
            load_matrices_turned(w[pair][part], s.weight(part, page * kPage + lane % 16) +
                                                    16 * pair + lane / 16 * 8);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int unit = share.first + u * share.step;
        if (unit >= units) break;
        Fragment<F> v[V::kTiles];
        V::load(rows, s.row_stride, a.kv.v_cols, unit, v);
#pragma unroll
        for (int t = 0; t < V::kTiles; ++t) {
          const NonFinite<F> non_finite(v[t]);
#pragma unroll
          for (int n = 0; n < kMostQueries / 8; ++n) {
            if (n / 2 < share.from_pair || n / 2 >= share.to_pair) continue;
            multiply<F>(acc[u][t][n], v[t], w[n / 2], n % 2);
            if (non_finite.any) non_finite.mark(acc[u][t][n], w[n / 2], n % 2);
          }
        }
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u)
#pragma unroll
    for (int t = 0; t < V::kTiles; ++t)
#pragma unroll
      for (int n = 0; n < kMostQueries / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = (share.first + u * share.step) * V::kTiles * 16 +
                        V::channel_of(t, lane / 4 + i / 2 * 8);
          const int q = 8 * n + lane % 4 * 2 + i % 2;
          const bool mine = n / 2 >= share.from_pair && n / 2 < share.to_pair;
          if (mine && c < a.kv.v_dim && q < tile.count()) each(q, c, acc[u][t][n][i] * V::kScale);
        }
}

// Divides the totals by the sums and writes the results. One warp writes 32 channels of a query.
template <class F>
__device__ __forceinline__ void write_queries(const AttentionArgs& a, const QueryTile& tile,
                                              const AttentionShared<F>& s) {
  const int lane = threadIdx.x % 32, blocks = (a.kv.v_dim + 31) / 32;
  for (int i = warp_of_block(); i < tile.count() * blocks; i += kWarps) {
    const int q = i / blocks, c = i % blocks * 32 + lane, token = tile.token_of(q),
              head = tile.head_of(q);
    float value = c < a.kv.v_dim ? s.total_of(q, c) : 0.0f, sum = s.sum[q];
    if (a.sinks) {  // the sink counts as a chunk of one position whose value is 0
      const float sink = a.sinks[head], merged = s.maximum[q] > sink ? s.maximum[q] : sink,
                  keep = exp_fixed(s.maximum[q] - merged);
      value = value * keep, sum = sum * keep + exp_fixed(sink - merged);
    }
    if (c < a.kv.v_dim) value = value / sum;
    // Values inside keys are rotated as these are. A rotation is its own inverse.
    if constexpr (kInKeys<F>) value = rotate_channels<Plain<F>>(value, c - lane, a.kv.v_dim);
    if (a.out && c < a.kv.v_dim) a.out[(int64_t(token) * a.heads + head) * a.kv.v_dim + c] = value;
    // If acts are wanted, v_dim is a multiple of 32.
    if (a.acts.data) quantize_block(value, &a.acts.at(token, int64_t(head) * blocks + i % blocks));
  }
}

}  // namespace chaski
