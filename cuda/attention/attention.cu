// The attention kernel. With few tokens (decode, a verification pass of draft tokens) the chunks of
// 256 positions are dealt over as many blocks as the device runs at once. The last block of a query
// to finish merges all chunks in order. With many tokens there are enough blocks, so each block
// walks all its chunks itself. Both ways take the same steps and give the same bits. The plan fixes
// the grid; a block whose first chunk the sequence has not reached returns at once.
#include <algorithm>

#include "cuda/attention/attention.cuh"
#include "cuda/backend.h"
#include "cuda/entry.h"
#include "cuda/rows/kv_store.cuh"

namespace chaski {
namespace {

constexpr int kMostWidth = 512;      // channels of a head, at most
constexpr int kMostKeyWidth = 1024;  // of a key with its value inside; shared memory limits it
constexpr int kMostHeads = 512;
constexpr int kSplitTokens = kCudaSplitTokens;  // up to this number of tokens
// shared memory in addition to AttentionShared: the flag of is_last(), aligned
constexpr size_t kFlagBytes = 128;

// A tile is a run of neighbouring tokens of one sequence; it does not cross a multiple of a.run.
// The block of its first token computes the whole tile. Returns false in the blocks of its other
// tokens.
__device__ bool find_tile(const AttentionArgs& a, QueryTile& tile) {
  // start with the tokens that see the most positions
  const int token = int(gridDim.x - 1 - blockIdx.x), piece = blockIdx.y % a.pieces();
  const int32_t* sequence = a.kv.table_start;
  if (token % a.run != 0 && sequence[token - 1] == sequence[token]) return false;
  tile.token = token;
  int end = token + 1;
  while (end < a.tokens && end % a.run != 0 && sequence[end] == sequence[token]) ++end;
  tile.tokens = end - token;
  tile.kv_head = blockIdx.y / a.pieces();
  tile.first_head = tile.kv_head * a.group + piece * a.heads_a_block;
  tile.heads = min(a.heads_a_block, a.group - piece * a.heads_a_block);
  tile.low = a.first_position(a.batch.cells[token]);  // cells grow from token to token
  tile.high = a.batch.cells[end - 1];
  return true;
}

// Computes chunks from, from + step, and so on. If `split`, their results go to memory; otherwise
// they are merged at once. Both ways are one loop, because the code is 100 KB and mostly runs once.
template <int kUnits, class F>
__device__ __forceinline__ void compute_chunks(const AttentionArgs& a, const QueryTile& tile,
                                               const AttentionShared<F>& s, Stages<F>& stages,
                                               int from, int last, int step, bool split) {
  for (int chunk = from; chunk <= last; chunk += step) {
    const int at = chunk * a.partial_stride();
    Scores scores = {};
    for (int slice = 0; slice < stages.slices(); ++slice)
      score_slice(tile, s, stages.next(), slice, tile.pages(chunk), scores);
    soft_max(a, tile, s, chunk, scores);
    if (const int q = threadIdx.x; q < tile.count()) {
      const float most = s.chunk_maximum[q], sum = s.chunk_sum[q];
      if (split)
        s.partial_row[q][at] = most, s.partial_row[q][at + 1] = sum;
      else
        merge_sums(s, q, most, sum);
    }
    weigh_values<kUnits>(a, tile, s, stages, tile.pages(chunk), [&](int q, int c, float value) {
      if (split)
        s.partial_row[q][at + 4 + c] = value;
      else
        merge_value(s, q, c, value);
    });
  }
}

// Returns true in the block that finds the tile's other blocks done. Thread 0 fences for all
// threads: the barrier puts their writes before its fence.
__device__ __forceinline__ bool is_last(const AttentionArgs& a, int blocks) {
  __syncthreads();
  __shared__ bool last;
  if (threadIdx.x == 0) {
    unsigned* counter = a.counters + int64_t(blockIdx.x) * gridDim.y + blockIdx.y;
    __threadfence();
    last = atomicAdd(counter, 1u) + 1 == unsigned(blocks);
    if (last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Chunks that are merged between barriers, and values that a thread asks for before it uses them.
constexpr int kMergeChunks = 32, kMergeAhead = 16;
struct MergeRoom {  // in the first stage, which is free by now
  float most[kMergeChunks][kMostQueries], sum[kMergeChunks][kMostQueries];
  float keep[kMergeChunks][kMostQueries], take[kMergeChunks][kMostQueries];
};
static_assert(sizeof(MergeRoom) <= kStageBytes);

template <class F>
__device__ __forceinline__ void merge_partials(const AttentionArgs& a, const QueryTile& tile,
                                               const AttentionShared<F>& s, int first, int last) {
  auto& room = *reinterpret_cast<MergeRoom*>(s.stages);
  const int count = tile.count(), step = a.partial_stride();
  const auto partial = [&](int q, int chunk) { return s.partial_row[q] + chunk * step; };
  clear_totals(a, tile, s);
  for (int from = first; from <= last; from += kMergeChunks) {
    const int chunks = min(kMergeChunks, last + 1 - from);
    __syncthreads();
    for (int i = threadIdx.x; i < chunks * count; i += kChunk) {
      const int k = i / count, q = i % count;
      const float* at = partial(q, from + k);
      room.most[k][q] = __ldcg(at), room.sum[k][q] = __ldcg(at + 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < chunks * count; i += kChunk) {
      const int k = i / count, q = i % count;
      float before = s.maximum[q];
      for (int j = 0; j < k; ++j) before = before > room.most[j][q] ? before : room.most[j][q];
      const MergeFactors f(before, room.most[k][q], room.sum[k][q]);
      room.keep[k][q] = f.keep, room.take[k][q] = f.take;
    }
    __syncthreads();
    if (int(threadIdx.x) < count) {
      const int q = threadIdx.x;
      float most = s.maximum[q], sum = s.sum[q];
      for (int k = 0; k < chunks; ++k) {
        most = most > room.most[k][q] ? most : room.most[k][q];
        sum = sum * room.keep[k][q] + room.sum[k][q] * room.take[k][q];
      }
      s.maximum[q] = most, s.sum[q] = sum;
    }
    for (int i = threadIdx.x; i < count * a.kv.v_dim; i += kChunk) {
      const int q = i / a.kv.v_dim, c = i % a.kv.v_dim;
      const float* at = partial(q, from) + 4 + c;
      float total = s.total_of(q, c);
      for (int k = 0; k < chunks; k += kMergeAhead) {
        float value[kMergeAhead];
#pragma unroll
        for (int j = 0; j < kMergeAhead; ++j)
          value[j] = k + j < chunks ? __ldcg(at + int64_t(k + j) * step) : 0.0f;
#pragma unroll
        for (int j = 0; j < kMergeAhead; ++j)
          if (k + j < chunks)
            total = merged_value(total, value[j], room.keep[k + j][q], room.take[k + j][q]);
      }
      s.total_of(q, c) = total;
    }
  }
}

// Grid: (tokens, KV heads * pieces of a group, blocks that share the chunks). kUnits is 1 except
// for wide heads, which need more registers for their sums.
template <class F, int kUnits>
__global__ void __launch_bounds__(kChunk, 2) attention(AttentionArgs a) {
  wait_for_previous();
  start_next();
  QueryTile tile;
  if (!find_tile(a, tile)) return;
  const int first = tile.low / kChunk, last = tile.high / kChunk, step = gridDim.z;
  const int from = first + int(blockIdx.z);
  if (from > last) return;

  const AttentionShared<F> s(dynamic_shared<std::byte>(), a);
  Stages<F> stages(a, tile, s, from, last, step);
  load_queries(a, tile, s);
  const bool split = a.partial && first < last;
  if (!split) {
    __syncthreads();
    clear_totals(a, tile, s);
  }
  compute_chunks<kUnits>(a, tile, s, stages, from, last, step, split);
  if (split) {
    if (!is_last(a, min(step, last - first + 1))) return;
    merge_partials(a, tile, s, first, last);
  }
  __syncthreads();
  write_queries(a, tile, s);
}

struct AttentionKernel {
  static const KvView& view(const Attention& op, const OpArgs& a) {
    return a.where->states.paged[size_t(op.state)];
  }
  // Calls f with the format of the pages, or with Latent<> of it.
  template <class Call>
  static void with_pages(const Attention& op, const OpArgs& a, Call f) {
    const KvLayout& layout = view(op, a).layout;
    KvFormats::with(layout.format, [&]<class F>(F) {
      if constexpr (kHasPages<F>) layout.v_inside_k ? f(Latent<F>{}) : f(F{});
    });
  }
  static bool split(const OpArgs& a) { return a.in[0].shape.rows <= kSplitTokens; }
  static int chunks(int context) { return (context + kChunk - 1) / kChunk; }
  // The size does not depend on the number of tokens or heads. The steps of all plans share this
  // memory and must find each other's counters at zero.
  static constexpr size_t kCounterBytes = kSplitTokens * kMostHeads * sizeof(unsigned);
  // What the shape of a block depends on.
  static AttentionArgs sizes(const Attention& op, const OpArgs& a) {
    AttentionArgs args{};
    args.kv = kv_state(view(op, a), {});
    args.tokens = int(a.in[0].shape.rows), args.heads = op.heads, args.group = op.group();
    return args;
  }
  static size_t shape_bytes(const Attention& op, const OpArgs& a, size_t limit,
                            bool totals_in_memory) {
    AttentionArgs args = sizes(op, a);
    size_t bytes = 0;
    with_pages(op, a,
               [&]<class F>(F) { bytes = shape<F>(args, limit, split(a), totals_in_memory); });
    return bytes;
  }
  static bool supports(const Attention& op, const OpArgs& a, size_t limit) {
    // An encoder's attention has no kernel here yet.
    return op.source == Attention::Source::pages && op.mask == Attention::Mask::causal &&
           op.kv.k_dim <= (op.kv.v_inside_k ? kMostKeyWidth : kMostWidth) &&
           op.kv.v_dim <= kMostWidth && op.heads <= kMostHeads && is_addressable(view(op, a)) &&
           (shape_bytes(op, a, limit, false) > 0 || shape_bytes(op, a, limit, true) > 0);
  }
  // Bytes of the totals in memory if shared memory has no room for them.
  static size_t totals_bytes(const Attention& op, const OpArgs& a, size_t limit) {
    if (shape_bytes(op, a, limit, false) > 0) return 0;
    return size_t(a.in[0].shape.rows) * op.heads * op.kv.v_dim * sizeof(float);
  }
  static size_t scratch(const Attention& op, const OpArgs& a, int context, size_t limit) {
    const size_t totals = totals_bytes(op, a, limit);
    if (!split(a)) return totals ? kCounterBytes + totals : 0;
    return kCounterBytes + totals +
           size_t(a.in[0].shape.rows) * op.heads * chunks(context) * (op.kv.v_dim + 4) *
               sizeof(float);
  }
  // Chooses as many queries a block as there are and as memory allows. Stages: as many as memory
  // allows if there are few blocks, which wait for bytes; two if there are many blocks. Returns the
  // bytes of shared memory, or 0 if nothing fits.
  template <class F>
  static size_t shape(AttentionArgs& args, size_t limit, bool split, bool totals_in_memory) {
    for (const auto& [queries, buffers] :
         {std::pair{32, kManyBuffers}, {16, kManyBuffers}, {32, kFewBuffers}, {16, kFewBuffers}}) {
      if ((queries == 32 && args.tokens * args.group <= 16) || (buffers == kManyBuffers && !split))
        continue;
      args.queries = queries, args.buffers = buffers;
      const size_t bytes = AttentionShared<F>(nullptr, args, totals_in_memory).bytes;
      if (bytes + kFlagBytes > limit) continue;
      args.heads_a_block = args.group < args.queries ? args.group : args.queries;
      args.run = args.queries / args.heads_a_block;
      return bytes;
    }
    return 0;
  }
  // Blocks that share the chunks of a tile: as many as the device runs at once, if each run of
  // tokens is a tile. most: chunks of a tile, at most.
  static int sharing_blocks(const AttentionArgs& args, const LaunchContext& c, size_t shared,
                            int most) {
    constexpr size_t kReserved = 1024;  // shared memory of a block that the driver takes
    const int together = 2 * (shared + kReserved) <= c.shared_limit + kReserved ? 2 : 1,
              tiles = (args.tokens + args.run - 1) / args.run * args.kv.heads * args.pieces(),
              blocks = (together * c.multiprocessors + tiles - 1) / tiles;
    return std::min(blocks, most);
  }
  template <class F>
  static void launch_over(const Attention& op, AttentionArgs args, const LaunchContext& c) {
    const size_t shared =
        shape<F>(args, c.shared_limit, args.partial != nullptr, args.totals != nullptr);
    // With a window, a run of tokens sees at most this number of chunks, at any position.
    int most = chunks(c.context);
    if (op.kv.window > 0 && (op.kv.window + args.run - 2) / kChunk + 2 < most)
      most = (op.kv.window + args.run - 2) / kChunk + 2;
    const dim3 grid(unsigned(args.tokens), unsigned(op.kv.heads * args.pieces()),
                    args.partial ? unsigned(sharing_blocks(args, c, shared, most)) : 1);
    // head width up to which a warp has one unit
    constexpr int kWidth = 16 * kWarps * Values<F>::kTiles;
    auto kernel = attention<F, kMostWidth / kWidth>;
    if constexpr (!kInKeys<F>)
      if (args.kv.v_cols <= kWidth) kernel = attention<F, 1>;
    chaski::launch("attention", {grid, kChunk, c.stream, shared}, kernel, args);
  }
  static void launch(const Attention& op, const OpArgs& a, const LaunchContext& c) {
    AttentionArgs args = sizes(op, a);
    args.kv = kv_state(view(op, a), c.batch), args.batch = c.batch;
    args.kv.scales = op.scaled_keys ? a.in[1].floats() : nullptr;
    args.q = a.in[0].floats(), args.out = a.out[0].out_row(0), args.acts = a.acts;
    args.window = op.kv.window, args.chunked = op.kv.chunked;
    args.scale = op.scale, args.soft_cap = op.soft_cap;
    args.max_bias = op.max_bias, args.sinks = op.sinks ? a.in[op.sinks_at()].floats() : nullptr;
    // scratch: counters, totals, results of chunks
    const size_t totals = totals_bytes(op, a, c.shared_limit);
    if (totals) args.totals = reinterpret_cast<float*>(c.scratch + kCounterBytes);
    if (split(a)) {
      args.counters = reinterpret_cast<unsigned*>(c.scratch);
      args.partial = reinterpret_cast<float*>(c.scratch + kCounterBytes + totals);
      args.chunks = chunks(c.context);
    }
    with_pages(op, a, [&]<class F>(F) { launch_over<F>(op, args, c); });
  }
};

}  // namespace

template <>
struct CudaKernel<Attention> : AttentionKernel {};
template CudaEntry cuda_entry<Attention>();

// Only the CPU has kernels for sparse attention and for the linear attention of Based.
template <class Op>
struct OnlyOnCpu {
  static bool supports(const Op&, const OpArgs&) { return false; }
  static void launch(const Op&, const OpArgs&, const LaunchContext&) {}
};
template <>
struct CudaKernel<LightningIndex> : OnlyOnCpu<LightningIndex> {};
template CudaEntry cuda_entry<LightningIndex>();
template <>
struct CudaKernel<SparseAttention> : OnlyOnCpu<SparseAttention> {};
template CudaEntry cuda_entry<SparseAttention>();
template <>
struct CudaKernel<TaylorScan> : OnlyOnCpu<TaylorScan> {};
template CudaEntry cuda_entry<TaylorScan>();

}  // namespace chaski
