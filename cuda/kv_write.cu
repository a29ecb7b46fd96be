// Keys and values into their pages, with the bits of KvWrite::write, and the query rotated on the
// way: a block to a head of a token, first the key heads, then, with rope, the query heads.
#include "cuda/kv_store.cuh"

namespace chaski {
namespace {

constexpr int kWarps = 4;

struct KvWriteArgs {
  KvLayer kv;
  DeviceBatch batch;
  const float *k, *v, *q, *angles;  // q, angles: null without rope
  float* rotated_q;
  int q_heads, dim;
};

// A warp to 32 channels.
__global__ void kv_write(KvWriteArgs a) {
  wait_for_previous();
  start_next();
  __shared__ Act spare[kWarps];
  const int64_t token = blockIdx.x;
  const int head = blockIdx.y, head_dim = a.kv.head_dim, position = a.batch.positions[token],
            warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool is_query = head >= a.kv.heads;
  const float* angles = a.angles ? a.angles + int64_t(position) * a.dim : nullptr;
  const int64_t at = is_query ? (token * a.q_heads + head - a.kv.heads) * head_dim
                              : (token * a.kv.heads + head) * head_dim;
  for (int first = 32 * warp; first < head_dim; first += 32 * kWarps) {
    const int c = first + lane;
    const auto channel = [&](const float* x) { return c < head_dim ? x[at + c] : 0.0f; };
    if (is_query) {
      const float turned = rotate_channel(channel(a.q), c, angles, a.dim);
      if (c < head_dim) a.rotated_q[at + c] = turned;
      continue;
    }
    const KvSlot to(a.kv, a.batch.page_id(token, position), head, position);
    const float k = channel(a.k);
    store_channels(a.kv, to, first, angles ? rotate_channel(k, c, angles, a.dim) : k, true,
                   spare + warp);
    store_channels(a.kv, to, first, channel(a.v), false, spare + warp);
  }
}

struct KvWriteKernel {
  static bool supports(const KvWrite& op, const OpArgs& a) {
    if (a.batch->kv.layout.format == Format::q4_0) return false;
    return !op.rope || (op.q.spec == op.k.spec && op.q.dim == op.k.dim && op.q.spec < kMostRopes);
  }
  static void launch(const KvWrite& op, const OpArgs& a, const LaunchContext& c) {
    KvWriteArgs args{kv_layer(a.batch->kv, op.layer),
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
                    32 * kWarps, c.stream},
                   kv_write, args);
  }
};

}  // namespace

CudaEntry kv_write_entry() { return cuda_entry<KvWrite, KvWriteKernel>(); }

}  // namespace chaski
