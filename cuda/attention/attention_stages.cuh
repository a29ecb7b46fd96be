// What a block of attention (attention.cuh) works on: its arguments, its queries, its shared
// memory, and the stages through which keys and values arrive. A chunk has its keys in slices of
// channels, all pages in one stage. Its values follow, some pages a stage. The next chunk comes
// after that.
//
// The stages are a ring of buffers. When all threads are done with a stage, its buffer is filled
// with a later stage; each thread copies its own 16 bytes. One barrier a stage is enough: it says
// that the next stage has arrived and that the last one is free. A block has (buffers - 1) * 17 KB
// in flight.
#pragma once
#include "cuda/attention/kv_page.cuh"
#include "cuda/table.h"

namespace chaski {

constexpr int kWarps = kChunk / 32;  // a block has one thread for each position of a chunk
constexpr int kMostQueries = 32;
// 64 positions of 128 f16 values, each row padded by 16 bytes; or the slices of 16 pages of keys
constexpr int kStageBytes = 17 * 1024;
constexpr int kFewBuffers = 2, kManyBuffers = 6;

template <class F>
constexpr int kSliceSpans = kStageBytes / kPage / Keys<F>::kSpanBytes;
template <class F>
constexpr int kSliceBytes = kSliceSpans<F>* Keys<F>::kSpanBytes;  // of one page

// Reads the warp number through a shuffle, so that the compiler knows that it is uniform in a warp.
__device__ __forceinline__ int warp_of_block() {
  return __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
}

struct AttentionArgs {
  KvState kv;
  DeviceBatch batch;
  const float* q;  // (tokens, heads * k_dim)
  float* out;      // (tokens, heads * v_dim), or null
  ActsView acts;   // the same quantized; out, acts or both are written
  int tokens, heads, group, window;
  bool chunked;  // state.h
  float scale, soft_cap, max_bias;
  const float* sinks;  // (heads), or null
  int queries;         // room of a block, a multiple of 16
  int run;             // tokens a block may take, at most
  int heads_a_block;   // heads of a group that a block takes
  int buffers;         // kFewBuffers or kManyBuffers
  // Only if the context is split over blocks. partial: results by (token, head, chunk):
  // maximum, sum, and from [4] on the values. counters: one for each (token, piece of a group),
  // zero before and after a launch. Null: each block computes all its chunks.
  float* partial;
  unsigned* counters;
  int chunks;  // chunks a sequence can have, at most
  // (tokens, heads * v_dim): the queries' totals if shared memory has no room for them, or null
  float* totals;

  __host__ __device__ int pieces() const { return (group + heads_a_block - 1) / heads_a_block; }
  __device__ __forceinline__ int first_position(int p) const {
    if (window > 0 && chunked) return p / window * window;
    return window > 0 && p >= window ? p - window + 1 : 0;
  }
  // The results of chunk 0; those of the next chunk are partial_stride() further.
  __device__ __forceinline__ float* partial_of(int64_t token, int head) const {
    return partial + (token * heads + head) * chunks * partial_stride();
  }
  __device__ __forceinline__ int partial_stride() const { return kv.v_dim + 4; }
};

// Pages [from, to) of a chunk; both are 0..16.
struct PageRun {
  int from, to;
  __device__ __forceinline__ bool has(int page) const { return page >= from && page < to; }
};

// The queries of a block: tokens [token, token + tokens) times the heads [first_head, first_head +
// heads), which share KV head `kv_head`.
struct QueryTile {
  int token, tokens, kv_head, first_head, heads;
  int low, high;  // first and last position that any query sees

  __device__ __forceinline__ int count() const { return tokens * heads; }
  __device__ __forceinline__ int pairs() const { return (count() + 15) / 16; }
  __device__ __forceinline__ int token_of(int q) const { return token + q / heads; }
  __device__ __forceinline__ int head_of(int q) const { return first_head + q % heads; }
  __device__ __forceinline__ PageRun pages(int chunk) const {
    const int start = chunk * kChunk;
    return {max(low - start, 0) / kPage, min(high - start, kChunk - 1) / kPage + 1};
  }
};

// Dynamic shared memory. ldmatrix reads eight rows of 16-byte pieces at once; row strides are an
// odd number of pieces, which avoids bank conflicts. Values inside keys rely on Keys<F>::place().
template <class F>
struct AttentionShared {
  // a row of values has one position, or the scales of q8; or a page if they are inside the keys
  int k_pad, v_pad, row_pieces, row_stride, pages_a_stage, stage_bytes;
  int queries, total_stride;
  std::byte* stages;
  uint16_t *q, *weights;  // [part][query][k_pad + 8], [part][position][queries + 8]
  float* total;           // [channel][queries + 4], or null: in total_row
  float** total_row;      // [query], in memory
  float** partial_row;    // [query]: AttentionArgs::partial_of()
  float* warps;           // [warp][query]
  float *maximum, *sum;   // [query], of the chunks so far
  // [query]: factors of the total and of the chunk's values when they are merged
  float *keep, *take;
  float *chunk_maximum, *chunk_sum, *factor, *slope;
  int *first, *last;  // first and last position that a query sees
  size_t bytes;

  __host__ __device__ __forceinline__ AttentionShared(std::byte* at, const AttentionArgs& a)
      : AttentionShared(at, a, a.totals != nullptr) {}
  __host__ __device__ __forceinline__ AttentionShared(std::byte* at, const AttentionArgs& a,
                                                      bool totals_in_memory) {
    constexpr int kUnit = 16 * Values<F>::kTiles;
    const std::byte* begin = at;
    queries = a.queries, total_stride = queries + 4;
    k_pad = (a.kv.k_cols + Keys<F>::kSpan - 1) / Keys<F>::kSpan * Keys<F>::kSpan,
    v_pad = (a.kv.v_cols + kUnit - 1) / kUnit * kUnit;
    if constexpr (kInKeys<F>) {
      const int channel_bytes = int(a.kv.k_bytes) / a.kv.k_cols;
      row_pieces = min(a.kv.v_cols, a.kv.k_cols) * channel_bytes / 16;
      row_stride = (v_pad * channel_bytes + 15) / 16 * 16;
    } else {
      row_pieces = int(a.kv.v_bytes) / Values<F>::kRows / 16, row_stride = 16 * (row_pieces | 1);
    }
    const int page = Values<F>::kRows * row_stride;
    stage_bytes = page > kStageBytes ? page : kStageBytes, pages_a_stage = stage_bytes / page;
    stages = at, at += size_t(a.buffers) * stage_bytes;
    q = reinterpret_cast<uint16_t*>(at), at += sizeof(uint16_t) * kParts * queries * (k_pad + 8);
    weights = reinterpret_cast<uint16_t*>(at),
    at += sizeof(uint16_t) * kParts * kChunk * (queries + 8);
    auto floats = [&](int n) {
      auto* p = reinterpret_cast<float*>(at);
      at += sizeof(float) * n;
      return p;
    };
    total = nullptr, total_row = nullptr;
    partial_row = reinterpret_cast<float**>(at), at += sizeof(float*) * kMostQueries;
    if (totals_in_memory)
      total_row = reinterpret_cast<float**>(at), at += sizeof(float*) * kMostQueries;
    else
      total = floats(v_pad * total_stride);
    warps = floats(kWarps * kMostQueries);
    maximum = floats(kMostQueries), sum = floats(kMostQueries), keep = floats(kMostQueries),
    take = floats(kMostQueries);
    chunk_maximum = floats(kMostQueries), chunk_sum = floats(kMostQueries),
    factor = floats(kMostQueries), slope = floats(kMostQueries);
    first = reinterpret_cast<int*>(floats(kMostQueries)),
    last = reinterpret_cast<int*>(floats(kMostQueries));
    bytes = size_t(at - begin);
  }
  __device__ __forceinline__ uint16_t* query(int part, int i) const {
    return q + (part * queries + i) * (k_pad + 8);
  }
  __device__ __forceinline__ uint16_t* weight(int part, int position) const {
    return weights + (part * kChunk + position) * (queries + 8);
  }
  __device__ __forceinline__ float& total_of(int i, int channel) const {
    return total_row ? total_row[i][channel] : total[channel * total_stride + i];
  }
};

template <class F>
class Stages {
 public:
  // Starts loading chunks first, first + step, and so on, up to last.
  __device__ __forceinline__ Stages(const AttentionArgs& a, const QueryTile& tile,
                                    const AttentionShared<F>& s, int first, int last, int step)
      : a_(a), tile_(tile), s_(s), chunk_(first), last_(last), step_(step) {
    for (int i = 1; i < a.buffers; ++i) request();
  }
  __device__ __forceinline__ int slices() const {
    return (s_.k_pad / Keys<F>::kSpan + kSliceSpans<F> - 1) / kSliceSpans<F>;
  }

  // Returns the next stage, for all threads. The data of the previous stage is overwritten.
  __device__ __forceinline__ const std::byte* next() {
    if (a_.buffers == kFewBuffers)
      wait_copies<kFewBuffers - 2>();
    else
      wait_copies<kManyBuffers - 2>();
    __syncthreads();
    const std::byte* stage = s_.stages + current_ * s_.stage_bytes;
    current_ = current_ + 1 == a_.buffers ? 0 : current_ + 1;
    request();
    return stage;
  }

 private:
  __device__ __forceinline__ void request() {
    if (chunk_ <= last_) {
      const PageRun pages = tile_.pages(chunk_);
      std::byte* to = s_.stages + requested_ * s_.stage_bytes;
      const int group = stage_ - slices();
      if (group < 0)
        request_keys(to, pages);
      else
        request_values(to, pages.from + group * s_.pages_a_stage, pages.to);
      ++stage_;
      if (group >= 0 && pages.from + (group + 1) * s_.pages_a_stage >= pages.to)
        stage_ = 0, chunk_ += step_;
    }
    requested_ = requested_ + 1 == a_.buffers ? 0 : requested_ + 1;
    commit_copies();  // also past the end, because next() counts the groups
  }
  // A row is one page's slice; it is zero past the end of the head.
  __device__ __forceinline__ void request_keys(std::byte* to, const PageRun& pages) const {
    constexpr int kPieces = kSliceBytes<F> / 16, kAtOnce = kChunk / kPieces;
    const int piece = threadIdx.x % kPieces, from = stage_ * kSliceBytes<F> + 16 * piece;
    if (threadIdx.x >= kAtOnce * kPieces) return;
    for (int page = pages.from + int(threadIdx.x) / kPieces; page < pages.to; page += kAtOnce) {
      std::byte* at = to + page * kSliceBytes<F> + 16 * Keys<F>::place(piece);
      if (from < a_.kv.k_bytes)
        copy_async16(at, a_.kv.k_tile(page_id(page), tile_.kv_head) + from);
      else
        *reinterpret_cast<uint4*>(at) = uint4{};
    }
  }
  __device__ __forceinline__ void request_values(std::byte* to, int from, int end) const {
    constexpr int kRows = Values<F>::kRows;
    if constexpr (kInKeys<F>) {
      for (const int last = min(end, from + s_.pages_a_stage); from < last;
           ++from, to += s_.row_stride) {
        const std::byte* tile = a_.kv.k_tile(page_id(from), tile_.kv_head);
        for (int piece = threadIdx.x; piece < s_.row_pieces; piece += kChunk)
          copy_async16(to + 16 * Keys<F>::place(piece), tile + 16 * piece);
      }
      return;
    }
    const int at_once = kChunk / s_.row_pieces, piece = threadIdx.x % s_.row_pieces;
    const int rows = (min(end, from + s_.pages_a_stage) - from) * kRows;
    if (int(threadIdx.x) >= at_once * s_.row_pieces) return;
    for (int r = threadIdx.x / s_.row_pieces; r < rows; r += at_once)
      copy_async16(to + r * s_.row_stride + 16 * piece,
                   a_.kv.v_rows(page_id(from + r / kRows), tile_.kv_head) +
                       16 * (r % kRows * s_.row_pieces + piece));
  }
  __device__ __forceinline__ int32_t page_id(int page) const {
    return a_.kv.page_id(tile_.token, chunk_ * kChunk + page * kPage);
  }

  const AttentionArgs& a_;
  const QueryTile& tile_;
  const AttentionShared<F>& s_;
  int chunk_, last_, step_, stage_ = 0;  // the stage to be requested next
  int requested_ = 0, current_ = 0;      // places in the ring
};

}  // namespace chaski
