// Attention: few tokens (decode, the check of a draft) split the context over blocks, a chunk of 256 positions each, and the last block of
// a query to finish merges all of them in order; many tokens have blocks enough, each of which walks its chunks. Same steps, same bits.
// The grid is fixed by the plan: blocks of chunks that a sequence has not reached end at once.
#include "cuda/attention.cuh"

namespace chaski {
namespace {

constexpr int kSplitTokens = 32;  // up to here the context is split

// Tokens of one sequence go together, within stretches of a.run: the first of them takes them, the others' blocks have nothing to do.
__device__ bool find_tile(const AttentionArgs& a, QueryTile& tile) {
  const int token = blockIdx.x, piece = blockIdx.y % a.pieces();
  const int32_t* sequence = a.batch.table_start;
  if (token % a.run != 0 && sequence[token - 1] == sequence[token]) return false;
  tile.token = token;
  int end = token + 1;
  while (end < a.tokens && end % a.run != 0 && sequence[end] == sequence[token]) ++end;
  tile.tokens = end - token;
  tile.kv_head = blockIdx.y / a.pieces();
  tile.first_head = tile.kv_head * a.group + piece * a.heads_a_block;
  tile.heads = min(a.heads_a_block, a.group - piece * a.heads_a_block);
  tile.low = a.first_position(a.batch.positions[token]);  // positions grow
  tile.high = a.batch.positions[end - 1];
  return true;
}

template <class F, class Each>
__device__ __forceinline__ void weigh_chunk(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s, int chunk, Each each) {
  if (tile.count() == 1) weigh_values<F, 1>(a, tile, s, chunk, 0, each);
  else for (int q = 0; q < tile.count(); q += kAtOnce) weigh_values<F, kAtOnce>(a, tile, s, chunk, q, each);
}

// Scores and weights of a chunk; s.weights, s.chunk_maximum and s.chunk_sum are ready when it returns.
template <class F>
__device__ __forceinline__ void weights_of_chunk(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s, int chunk) {
  __syncthreads();
  score_chunk<F>(a, tile, s, chunk);
  __syncthreads();
  soft_max_chunk(tile, s);
  __syncthreads();
}

// A chunk of a split context: its result to memory. True for the block that finds all others of the tile done.
template <class F>
__device__ bool leave_partial(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s, int chunk, int chunks) {
  weights_of_chunk<F>(a, tile, s, chunk);
  if (int(threadIdx.x) < tile.count()) {
    float* to = a.partial_of(tile.token_of(threadIdx.x), tile.head_of(threadIdx.x), chunk);
    to[0] = s.chunk_maximum[threadIdx.x], to[1] = s.chunk_sum[threadIdx.x];
  }
  weigh_chunk<F>(a, tile, s, chunk, [&](int q, int c, float value) {
    if (c < a.head_dim) a.partial_of(tile.token_of(q), tile.head_of(q), chunk)[4 + c] = value;
  });
  __threadfence();
  __syncthreads();
  __shared__ bool last;
  unsigned* counter = a.counters + int64_t(blockIdx.x) * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1u) + 1 == unsigned(chunks);
    if (last) *counter = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

__device__ void merge_partials(const AttentionArgs& a, const QueryTile& tile, const AttentionShared& s, int first, int last) {
  for (int chunk = first; chunk <= last; ++chunk) {
    __syncthreads();
    if (int(threadIdx.x) < tile.count()) {
      const float* from = a.partial_of(tile.token_of(threadIdx.x), tile.head_of(threadIdx.x), chunk);
      merge_sums(s, threadIdx.x, __ldcg(from), __ldcg(from + 1));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < tile.count() * a.head_dim; i += kChunk) {
      const int q = i / a.head_dim, c = i % a.head_dim;
      merge_value(s, q, s.total[q * a.kv.v_cols + c], __ldcg(a.partial_of(tile.token_of(q), tile.head_of(q), chunk) + 4 + c));
    }
  }
}

// Grid: (tokens, KV heads * pieces of a group, chunks or 1).
template <class F>
__global__ void __launch_bounds__(kChunk, 2) attention(AttentionArgs a) {
  wait_for_previous();
  start_next();
  QueryTile tile;
  if (!find_tile(a, tile)) return;
  const int first = tile.low / kChunk, last = tile.high / kChunk;
  int from = first, to = last;
  if (a.partial) from = to = first + int(blockIdx.z);
  if (from > last) return;

  const AttentionShared s(dynamic_shared<float>(), a.kv.k_cols, a.kv.v_cols);
  load_queries(a, tile, s);
  if (a.partial && first < last) {
    if (!leave_partial<F>(a, tile, s, from, last - first + 1)) return;
    merge_partials(a, tile, s, first, last);
  } else {
    for (int chunk = from; chunk <= to; ++chunk) {
      weights_of_chunk<F>(a, tile, s, chunk);
      if (int(threadIdx.x) < tile.count()) merge_sums(s, threadIdx.x, s.chunk_maximum[threadIdx.x], s.chunk_sum[threadIdx.x]);
      weigh_chunk<F>(a, tile, s, chunk, [&](int q, int c, float value) { merge_value(s, q, s.total[q * a.kv.v_cols + c], value); });
    }
  }
  __syncthreads();
  write_queries(a, tile, s);
}

struct AttentionKernel {
  static bool split(const OpArgs& a) { return a.in[0].shape.rows <= kSplitTokens; }
  static int chunks(int context) { return (context + kChunk - 1) / kChunk; }
  // The same for every number of tokens: the steps of all plans share the memory, and find each other's counters at zero.
  static size_t counter_bytes(const Attention& op) { return (size_t(kSplitTokens) * op.heads * sizeof(unsigned) + 255) / 256 * 256; }
  static bool supports(const Attention& op, const OpArgs& a) {
    return op.head_dim <= kMaxHeadDim && a.batch->kv.layout.format != Format::q4_0;
  }
  static size_t scratch(const Attention& op, const OpArgs& a, int context) {
    if (!split(a)) return 0;
    return counter_bytes(op) + size_t(a.in[0].shape.rows) * op.heads * chunks(context) * (op.head_dim + 4) * sizeof(float);
  }
  static void launch(const Attention& op, const OpArgs& a, const LaunchContext& c) {
    AttentionArgs args{};
    args.kv = kv_layer(a.batch->kv, op.layer), args.batch = c.batch;
    args.q = a.in[0].floats(), args.out = a.out[0].out_row(0), args.acts = a.acts;
    args.tokens = int(a.in[0].shape.rows), args.heads = op.heads, args.group = op.heads / op.kv_heads, args.head_dim = op.head_dim;
    args.window = op.window, args.scale = op.scale, args.soft_cap = op.soft_cap;
    args.heads_a_block = args.group < kMostQueries ? args.group : kMostQueries;
    args.run = kMostQueries / args.heads_a_block;
    if (split(a)) {
      args.counters = reinterpret_cast<unsigned*>(c.scratch);
      args.partial = reinterpret_cast<float*>(c.scratch + counter_bytes(op));
      args.chunks = chunks(c.context);
    }
    // A window of chunks is all that a run of tokens sees, wherever it stands.
    int most = chunks(c.context);
    if (op.window > 0 && (op.window + args.run - 2) / kChunk + 2 < most) most = (op.window + args.run - 2) / kChunk + 2;
    const dim3 grid(unsigned(args.tokens), unsigned(op.kv_heads * args.pieces()), split(a) ? unsigned(most) : 1);
    const size_t shared = AttentionShared::bytes(args.kv.k_cols, args.kv.v_cols);
    const Format format = a.batch->kv.layout.format;
    const auto kernel = format == Format::f32   ? attention<F32>
                        : format == Format::f16 ? attention<F16>
                        : format == Format::f8  ? attention<F8>
                                                : attention<Q8>;
    chaski::launch("attention", {grid, kChunk, c.stream, shared}, kernel, args);
  }
};

}  // namespace

CudaEntry attention_entry() { return cuda_entry<Attention, AttentionKernel>(); }

}  // namespace chaski
