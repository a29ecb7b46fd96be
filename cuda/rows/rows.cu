// The ops that copy rows and heads to their places. They share a file, because a file costs nvcc
// more time than its ops do.
#include "cuda/device/math.cuh"
#include "cuda/entry.h"
#include "cuda/rows/kv_store.cuh"
#include "quant/formats.h"

namespace chaski {
namespace {

// Rows of a table by token or position. A thread unpacks 32 columns of a row of a block format, so
// that few threads unpack a block, or one column of a float format. The values are exactly those of
// the format's definition.

template <class F>
__global__ void get_rows(const std::byte* table, int64_t strip_bytes, int64_t cols,
                         const int32_t* ids, float* out) {
  wait_for_previous();
  start_next();
  constexpr int kColumns = F::kFloat ? 1 : 32;  // columns of a thread
  const int64_t first = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * kColumns;
  if (first >= cols) return;
  const int32_t id = ids[blockIdx.x];
  const StripOf<F> strip(table + id / kStrip * strip_bytes);
  const int r = id % kStrip;
  const auto& tile = strip.tiles()[first / F::kBlock];
  const int column = int(first % F::kBlock);
  float* y = out + int64_t(blockIdx.x) * cols + first;
  if constexpr (requires { F::tile_at(tile, r, column); }) {
    for (int i = 0; i < kColumns; ++i) y[i] = F::tile_at(tile, r, column + i);
  } else {
    const auto block = F::get(tile, r);
    for (int i = 0; i < kColumns; ++i) y[i] = strip.row(r).at(block, column + i);
  }
}

struct GetRowsKernel {
  static bool supports(const GetRows&, const OpArgs& a) { return a.in[0].shape.rows > 1; }
  static void launch(const GetRows& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.in[0].shape.cols;
    const int32_t* ids = op.by == GetRows::By::token ? c.batch.tokens : c.batch.positions;
    with_device_format(a.in[0].format, [&]<class F>(F) {
      const int64_t threads = F::kFloat ? cols : cols / 32;
      constexpr int kThreads = F::kFloat ? 256 : 32;
      chaski::launch(
          "get_rows",
          {dim3(unsigned(a.out[0].shape.rows), unsigned((threads + kThreads - 1) / kThreads)),
           kThreads, c.stream},
          get_rows<F>, a.in[0].bytes(), int64_t(strip_bytes(F::kFormat, cols)), cols, ids,
          a.out[0].out_row(0));
    });
  }
};

// Copies the rows whose logits are wanted next to each other.

__global__ void take_rows(const float* x, const int32_t* outputs, float* y, int64_t cols) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x;
  if (i < cols) y[blockIdx.x * cols + i] = x[outputs[blockIdx.x] * cols + i];
}

struct TakeRowsKernel {
  static void launch(const TakeRows&, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.in[0].shape.cols;
    chaski::launch(
        "take_rows",
        {dim3(unsigned(a.out[0].shape.rows), unsigned((cols + 255) / 256)), 256, c.stream},
        take_rows, a.in[0].floats(), c.batch.outputs, a.out[0].out_row(0), cols);
  }
};

// Quantizes activations to 8 bits where no other kernel can do it. A warp takes a block of 32.

constexpr int kQuantizeWarps = 4;

__global__ void quantize_acts(const float* x, ActsView acts) {
  wait_for_previous();
  start_next();
  const int64_t row = blockIdx.x, block = int64_t(blockIdx.y) * kQuantizeWarps + threadIdx.x / 32;
  if (block < acts.blocks)
    quantize_block(x[(row * acts.blocks + block) * 32 + threadIdx.x % 32], &acts.at(row, block));
}

struct QuantizeActsKernel {
  static void launch(const QuantizeActs&, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("quantize_acts",
                   {dim3(unsigned(a.acts.rows),
                         unsigned((a.acts.blocks + kQuantizeWarps - 1) / kQuantizeWarps)),
                    kQuantizeWarps * 32, c.stream},
                   quantize_acts, a.in[0].floats(), a.acts);
  }
};

// Rotary embedding as a separate step. kv_write or the matmul before it does the rotation if
// possible. A block takes a head of a token.

constexpr int kRopeThreads = 64;

__global__ void rope(const float* x, float* y, const float* angles, const int32_t* positions,
                     int head_dim, int dim) {
  wait_for_previous();
  start_next();
  const int64_t token = blockIdx.x, at = (token * gridDim.y + blockIdx.y) * head_dim;
  for (int first = 0; first < head_dim; first += kRopeThreads) {  // all lanes of a warp stay active
    const int c = first + threadIdx.x;
    const float turned = rotate_channel(c < head_dim ? x[at + c] : 0.0f, c,
                                        angles + int64_t(positions[token]) * dim, dim);
    if (c < head_dim) y[at + c] = turned;
  }
}

struct RopeKernel {
  static bool supports(const Rope& op, const OpArgs&) { return op.spec < kMostRopes; }
  static void launch(const Rope& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("rope",
                   {dim3(unsigned(a.in[0].shape.rows), unsigned(op.heads)), kRopeThreads, c.stream},
                   rope, a.in[0].floats(), a.out[0].out_row(0), c.batch.ropes[op.spec],
                   c.batch.positions, op.head_dim, op.dim);
  }
};

// Stores keys and values in their pages, with the bits of KvWrite::write, and rotates the query as
// well. For queries a block takes a head of one token. For keys it takes a head and goes through
// the stores.

constexpr int kWriteWarps = 4;

struct KvWriteArgs {
  KvState kv;
  DeviceBatch batch;
  const float *k, *v, *q, *angles;  // q, angles: null without rope
  float* rotated_q;
  int q_heads, dim;
};

// A warp takes 32 channels.
__global__ void kv_write(KvWriteArgs a) {
  wait_for_previous();
  start_next();
  __shared__ Act spare[kWriteWarps];
  const int k_dim = a.kv.k_dim, v_dim = a.kv.v_dim, head = blockIdx.y, warp = threadIdx.x / 32,
            lane = threadIdx.x % 32;
  const auto angles_of = [&](int64_t token) {
    return a.angles ? a.angles + int64_t(a.batch.positions[token]) * a.dim : nullptr;
  };
  const auto channel = [](const float* x, int c, int dim) { return c < dim ? x[c] : 0.0f; };
  if (head >= a.kv.heads) {
    const int64_t token = blockIdx.x, at = (token * a.q_heads + head - a.kv.heads) * k_dim;
    const float* angles = angles_of(token);
    for (int first = 32 * warp; first < k_dim; first += 32 * kWriteWarps) {
      const int c = first + lane;
      const float turned = rotate_channel(channel(a.q + at, c, k_dim), c, angles, a.dim);
      if (c < k_dim) a.rotated_q[at + c] = turned;
    }
    return;
  }
  for (const Store* s = a.kv.stores() + blockIdx.x; s < a.kv.stores_end(); s += gridDim.x) {
    const KvSlot to(a.kv, *s, head);
    const float *key = a.k + (int64_t(s->token) * a.kv.heads + head) * k_dim,
                *angles = angles_of(s->token);
    for (int first = 32 * warp; first < k_dim; first += 32 * kWriteWarps) {
      const float k = channel(key, first + lane, k_dim);
      store_channels(a.kv, to, first, angles ? rotate_channel(k, first + lane, angles, a.dim) : k,
                     true, spare + warp);
    }
    if (a.kv.v_inside_k) continue;
    const float* value = a.v + (int64_t(s->token) * a.kv.heads + head) * v_dim;
    for (int first = 32 * warp; first < v_dim; first += 32 * kWriteWarps)
      store_channels(a.kv, to, first, channel(value, first + lane, v_dim), false, spare + warp);
  }
}

struct KvWriteKernel {
  static bool supports(const KvWrite& op, const OpArgs& a) {
    if (!is_addressable(a.where->states.paged[size_t(op.state)])) return false;
    return !op.rope || (op.q.spec == op.k.spec && op.q.dim == op.k.dim &&
                        op.q.head_dim == op.kv.k_dim && op.q.spec < kMostRopes);
  }
  static void launch(const KvWrite& op, const OpArgs& a, const LaunchContext& c) {
    KvWriteArgs args{kv_state(op, a, c.batch),
                     c.batch,
                     a.in[0].floats(),
                     a.in[1].floats(),
                     nullptr,
                     nullptr,
                     nullptr,
                     0,
                     0};
    if (op.rope) {
      args.q = a.in[2].floats(), args.rotated_q = a.out[0].out_row(0), args.q_heads = op.q.heads,
      args.dim = op.q.dim;
      args.angles = c.batch.ropes[op.k.spec];
    }
    chaski::launch("kv_write",
                   {dim3(unsigned(a.in[0].shape.rows), unsigned(args.kv.heads + args.q_heads)),
                    32 * kWriteWarps, c.stream},
                   kv_write, args);
  }
};

}  // namespace

template <>
struct CudaKernel<GetRows> : GetRowsKernel {};
template CudaEntry cuda_entry<GetRows>();
template <>
struct CudaKernel<TakeRows> : TakeRowsKernel {};
template CudaEntry cuda_entry<TakeRows>();
template <>
struct CudaKernel<QuantizeActs> : QuantizeActsKernel {};
template CudaEntry cuda_entry<QuantizeActs>();
template <>
struct CudaKernel<Rope> : RopeKernel {};
template CudaEntry cuda_entry<Rope>();
template <>
struct CudaKernel<KvWrite> : KvWriteKernel {};
template CudaEntry cuda_entry<KvWrite>();

}  // namespace chaski
