// Attention over KV pages: one block's share. Flash style (Dao et al. 2022): 256 positions at a time, a chunk, give each query a maximum,
// a sum and weighted values, and chunks are merged first to last.
//
// The bits of a query's result depend on its sequence alone: chunks start at multiples of 256 positions; in a chunk a score is summed
// over the lanes that hold its channels and a value over the threads that hold its positions, both laid out by the head's width and the
// pages' format; chunks are merged in order, by whichever block. What a query must not see is never added.
//
// A block takes up to 16 queries that share a KV head: the heads of a group, times neighbouring tokens of one sequence. A page goes through
// the registers once per 4 queries, from memory the first time, then from L1.
//
// Steps of a chunk:  1. scores      warps take pages; K straight to registers, 16 bytes a lane; lanes' partial dots folded by shuffles
//                    2. soft-max    warps take queries: weights, maximum, sum; and how the chunk merges with those before
//                    3. values      threads take (channels, positions); partial sums folded through shared memory, onto the total
//
// f32 arithmetic by fma throughout: 4 per position, channel and query head. A decode step of an 8B model at 2000 positions needs .03 GFLOP
// and 8 MB a layer: bytes decide. A prompt is bound by fma; tensor cores would have to be used for decode as well, with weights and
// queries rounded to f16.
#pragma once
#include "cuda/kv_page.cuh"
#include "cuda/math.cuh"
#include "cuda/table.h"

namespace chaski {

constexpr int kChunk = 256;  // positions, and threads of a block
constexpr int kMostQueries = 16;
constexpr int kQueryStride = kMostQueries + 4;  // floats: rows of 16 queries that are read by fours fall into different banks
constexpr int kFold = 4096;                     // floats through which values are folded
constexpr int kAtOnce = 4;                      // queries

struct AttentionArgs {
  KvLayer kv;
  DeviceBatch batch;
  const float* q;    // (tokens, heads * head_dim)
  float* out;        // the same, or null
  ActsView acts;     // and / or quantized
  int tokens, heads, group, head_dim, window;
  float scale, soft_cap;
  int run;           // tokens a block may take
  int heads_a_block; // of a group
  // Split: a block a chunk, partial results per (token, head, chunk): maximum, sum, values from [4] on; and a counter per (token,
  // piece of a group), zero before and after. Null: a block takes all chunks.
  float* partial;
  unsigned* counters;
  int chunks;        // a sequence can have

  __host__ __device__ int pieces() const { return (group + heads_a_block - 1) / heads_a_block; }
  __device__ __forceinline__ int first_position(int p) const { return window > 0 && p >= window ? p - window + 1 : 0; }
  __device__ __forceinline__ float* partial_of(int64_t token, int head, int chunk) const {
    return partial + ((token * heads + head) * chunks + chunk) * (head_dim + 4);
  }
};

// The queries of a block: `tokens` tokens from `token`, times `heads` heads from `first_head` of KV head `kv_head`.
struct QueryTile {
  int token, tokens, kv_head, first_head, heads;
  int low, high;  // positions that some query sees

  __device__ __forceinline__ int count() const { return tokens * heads; }
  __device__ __forceinline__ int token_of(int q) const { return token + q / heads; }
  __device__ __forceinline__ int head_of(int q) const { return first_head + q % heads; }
};

// Dynamic shared memory.
struct AttentionShared {
  float (*q)[kQueryStride];       // [channel][query], zero past the head's end
  float (*weights)[kQueryStride]; // [position of the chunk][query]: scores, then e^(score - maximum)
  float *total, *fold;            // [query][v_cols]; kFold
  float *maximum, *sum;           // [query], of the chunks so far
  float *keep, *take;             // [query], what the total and the chunk's values are multiplied with when they merge
  float *chunk_maximum, *chunk_sum;

  static __host__ __device__ size_t bytes(int k_cols, int v_cols) {
    return sizeof(float) * (size_t(k_cols + kChunk) * kQueryStride + size_t(kMostQueries) * v_cols + kFold + 6 * kMostQueries);
  }
  __device__ __forceinline__ AttentionShared(float* at, int k_cols, int v_cols) {
    fold = at, at += kFold;
    total = at, at += kMostQueries * v_cols;
    q = reinterpret_cast<float(*)[kQueryStride]>(at), at += k_cols * kQueryStride;
    weights = reinterpret_cast<float(*)[kQueryStride]>(at), at += kChunk * kQueryStride;
    maximum = at, sum = at + kMostQueries, keep = at + 2 * kMostQueries, take = at + 3 * kMostQueries;
    chunk_maximum = at + 4 * kMostQueries, chunk_sum = at + 5 * kMostQueries;
  }
};

// Through a shuffle, so that the compiler knows that a warp goes one way.
__device__ __forceinline__ int warp_of_block() { return __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0); }

__device__ __forceinline__ void load_queries(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s) {
  for (int i = threadIdx.x; i < a.kv.k_cols * kMostQueries; i += kChunk) {
    const int q = i / a.kv.k_cols, c = i % a.kv.k_cols;
    const bool real = q < tile.count() && c < a.head_dim;
    s.q[c][q] = real ? a.q[(int64_t(tile.token_of(q)) * a.heads + tile.head_of(q)) * a.head_dim + c] : 0.0f;
  }
  for (int i = threadIdx.x; i < kMostQueries * a.kv.v_cols; i += kChunk) s.total[i] = 0;
  if (threadIdx.x < kMostQueries) s.maximum[threadIdx.x] = -INFINITY, s.sum[threadIdx.x] = 0;
}

// Sums v[i] over the lanes that differ in bits kFirstBit.. of their number, halving what a lane is responsible for as long as there is
// more than one. Returns the first index of the lane's results, of which max(1, kN / lanes) follow each other.
template <int kN, int kFirstBit>
__device__ __forceinline__ int fold_lanes(float (&v)[kN]) {
  const int lane = threadIdx.x % 32;
  int first = 0;
#pragma unroll
  for (int bit = kFirstBit, n = kN; bit < 32; bit *= 2) {
    if (n > 1) {
      n /= 2;
      const bool upper = lane & bit;
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        if (i >= n) break;
        const float give = upper ? v[i] : v[i + n], mine = upper ? v[i + n] : v[i];
        v[i] = mine + __shfl_xor_sync(kAllLanes, give, bit);
      }
      if (upper) first += n;
    } else {
      v[0] = v[0] + __shfl_xor_sync(kAllLanes, v[0], bit);
    }
  }
  return first;
}

// What shared memory holds for queries [first, first + kQ) of a channel or a position.
template <int kQ>
__device__ __forceinline__ void load_row(const float* row, int first, float (&x)[kQ]) {
  if constexpr (kQ == 4) {
    const float4 four = *reinterpret_cast<const float4*>(row + first);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
#pragma unroll
    for (int n = 0; n < kQ; ++n) x[n] = row[first + n];
  }
}

// Step 1, one warp: scores of queries [first, first + kQ) with the page at positions [start, start + 16).
template <class F, int kQ>
__device__ __forceinline__ void score_page(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s, const std::byte* keys,
                                           int start, int first) {
  using K = Keys<F>;
  constexpr int kAhead = 4;
  const int part = threadIdx.x % K::kLanes, phase = threadIdx.x % 32 / K::kLanes, units = a.kv.k_cols / K::kChannels;
  float dot[kQ * K::kPositions] = {};  // [query][position]
  for (int from = phase; from < units; from += kAhead * K::kPhases) {
    typename K::Raw raw[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (from + K::kPhases * i < units) raw[i] = K::load(keys, from + K::kPhases * i, part);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int unit = from + K::kPhases * i;
      if (unit >= units) break;
      float k[K::kChannels][K::kPositions];
      K::values(raw[i], k);
#pragma unroll
      for (int c = 0; c < K::kChannels; ++c) {
        float q[kQ];
        load_row(s.q[unit * K::kChannels + c], first, q);
#pragma unroll
        for (int n = 0; n < kQ; ++n)
#pragma unroll
          for (int p = 0; p < K::kPositions; ++p) dot[n * K::kPositions + p] = fmaf(k[c][p], q[n], dot[n * K::kPositions + p]);
      }
    }
  }
  constexpr int kN = kQ * K::kPositions, kMine = kN > K::kPhases ? kN / K::kPhases : 1;
  const int at = fold_lanes<kN, K::kLanes>(dot);
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int q = first + (at + i) / K::kPositions, slot = K::kPositions * part + (at + i) % K::kPositions, p = start + slot;
    if (q >= tile.count()) continue;
    const int last = a.batch.positions[tile.token_of(q)];
    float score = dot[i] * a.scale;
    if (a.soft_cap > 0) score = a.soft_cap * tanh_fixed(score / a.soft_cap);
    s.weights[p % kChunk][q] = p >= a.first_position(last) && p <= last ? score : -INFINITY;
  }
}

template <class F>
__device__ __forceinline__ void score_chunk(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s, int chunk) {
  for (int page = warp_of_block(); page < kChunk / kPage; page += kChunk / 32) {
    const int start = chunk * kChunk + page * kPage;
    if (start + kPage <= tile.low || start > tile.high) {
      for (int i = threadIdx.x % 32; i < kPage * kMostQueries; i += 32) s.weights[page * kPage + i / kMostQueries][i % kMostQueries] = -INFINITY;
      continue;
    }
    const std::byte* keys = a.kv.k_tile(a.batch.page_id(tile.token, start), tile.kv_head);
    if (tile.count() == 1) {
      score_page<F, 1>(a, tile, s, keys, start, 0);
    } else {
      for (int q = 0; q < tile.count(); q += kAtOnce) score_page<F, kAtOnce>(a, tile, s, keys, start, q);
    }
  }
}

// Step 2, a warp a query: scores to weights; lanes' sums of every 32nd weight, added by halves.
__device__ __forceinline__ void soft_max_chunk(const QueryTile& tile, const AttentionShared& s) {
  const int lane = threadIdx.x % 32;
  for (int q = warp_of_block(); q < tile.count(); q += kChunk / 32) {
    float most = -INFINITY, sum = 0;
    for (int p = lane; p < kChunk; p += 32) most = s.weights[p][q] > most ? s.weights[p][q] : most;
#pragma unroll
    for (int n = 16; n > 0; n /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, most, n);
      most = most > other ? most : other;
    }
    const bool any = most > -INFINITY;
    for (int p = lane; p < kChunk; p += 32) {
      const float e = any ? exp_fixed(s.weights[p][q] - most) : 0.0f;
      s.weights[p][q] = e;
      sum = sum + e;
    }
#pragma unroll
    for (int n = 16; n > 0; n /= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, n);
    if (lane == 0) s.chunk_maximum[q] = most, s.chunk_sum[q] = sum;
  }
}

// One thread: what happens to query q's total when a chunk of this maximum and sum joins. A chunk of which it sees nothing does not.
__device__ __forceinline__ void merge_sums(const AttentionShared& s, int q, float most, float sum) {
  const float together = s.maximum[q] > most ? s.maximum[q] : most;
  const bool any = most > -INFINITY;
  s.keep[q] = any ? exp_fixed(s.maximum[q] - together) : 1.0f;
  s.take[q] = any ? exp_fixed(most - together) : 0.0f;
  s.sum[q] = s.sum[q] * s.keep[q] + sum * s.take[q];
  s.maximum[q] = together;
}
__device__ __forceinline__ void merge_value(const AttentionShared& s, int q, float& total, float value) {
  if (s.take[q] != 0.0f || s.keep[q] != 1.0f) total = fmaf(value, s.take[q], total * s.keep[q]);
}

// Step 3 for queries [first, first + kQ): thread = units * phase + unit sums its unit of channels over positions phase + phases * i; then the
// phases are added, first to last. each(query, channel, value) takes the result.
template <class F, int kQ, class Each>
__device__ __forceinline__ void weigh_values(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s, int chunk, int first,
                                             Each each) {
  using V = Values<F>;
  constexpr int kAhead = 4, kRound = kFold / (kChunk * V::kChannels) < kQ ? kFold / (kChunk * V::kChannels) : kQ;
  const int units = a.kv.v_cols / V::kChannels, phases = kChunk / units;
  const int unit = threadIdx.x % units, phase = threadIdx.x / units, start = chunk * kChunk;
  const int low = max(tile.low - start, 0), high = min(tile.high - start, kChunk - 1);
  float acc[kQ][V::kChannels] = {};
  const int skipped = low > phase ? (low - phase + phases - 1) / phases : 0;
  for (int from = phase + skipped * phases; phase < phases && from <= high; from += kAhead * phases) {
    typename V::Raw raw[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int p = from + i * phases;
      if (p <= high) raw[i] = V::load(a.kv.v_rows(a.batch.page_id(tile.token, start + p), tile.kv_head), p % kPage, unit, a.kv.v_cols);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int p = from + i * phases;
      if (p > high) break;
      float v[V::kChannels];
      V::values(raw[i], v);
      float w[kQ];
      load_row(s.weights[p], first, w);
#pragma unroll
      for (int n = 0; n < kQ; ++n) {
        if (w[n] == 0.0f) continue;  // unseen: the value may be anything
#pragma unroll
        for (int c = 0; c < V::kChannels; ++c) acc[n][c] = fmaf(v[c], w[n], acc[n][c]);
      }
    }
  }
#pragma unroll
  for (int round = 0; round < kQ; round += kRound) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kRound; ++n)
#pragma unroll
      for (int c = 0; c < V::kChannels; c += 4) {
        const float* x = acc[round + n] + c;
        auto* to = reinterpret_cast<float4*>(s.fold + (n * phases + phase) * a.kv.v_cols + V::kChannels * unit + c);
        if (phase < phases) *to = {x[0], x[1], x[2], x[3]};
      }
    __syncthreads();
    for (int i = threadIdx.x; i < kRound * a.kv.v_cols; i += kChunk) {
      const int n = i / a.kv.v_cols, c = i % a.kv.v_cols, q = first + round + n;
      if (q >= tile.count()) break;
      float sum = s.fold[n * phases * a.kv.v_cols + c];
      for (int k = 1; k < phases; ++k) sum = sum + s.fold[(n * phases + k) * a.kv.v_cols + c];
      each(q, c, sum);
    }
  }
}

// Totals over sums, to where they are wanted: a warp to 32 channels of a query.
__device__ __forceinline__ void write_queries(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s) {
  const int lane = threadIdx.x % 32, blocks = (a.head_dim + 31) / 32;
  for (int i = warp_of_block(); i < tile.count() * blocks; i += kChunk / 32) {
    const int q = i / blocks, c = i % blocks * 32 + lane, token = tile.token_of(q), head = tile.head_of(q);
    const float value = c < a.head_dim ? s.total[q * a.kv.v_cols + c] / s.sum[q] : 0.0f;
    if (a.out && c < a.head_dim) a.out[(int64_t(token) * a.heads + head) * a.head_dim + c] = value;
    if (a.acts.data) quantize_block(value, &a.acts.at(token, int64_t(head) * blocks + i % blocks));  // then head_dim is whole blocks
  }
}

}  // namespace chaski
