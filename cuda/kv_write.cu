// Keys and values into their pages, with the bits of KvWrite::write, and the query rotated on the way: a block to a head of a token,
// first the key heads, then, with rope, the query heads.
#include "cuda/math.cuh"
#include "cuda/rope.cuh"
#include "cuda/table.h"
#include "quant/floats.h"
#include "quant/q8.h"

namespace chaski {
namespace {

struct KvWriteArgs {
  KvLayer kv;
  DeviceBatch batch;
  const float *k, *v, *q, *k_angles, *q_angles;  // q: null without rope
  float* rotated_q;
  int q_heads, dim;
};

// Keys of one head lie in a tile whose rows are positions: channel c of `slot` is rows[slot] of column c.
template <class F, class Convert>
__device__ void write_floats(const KvLayer& kv, std::byte* keys, std::byte* values, int slot, const float* k, const float* v, Convert convert) {
  auto* columns = reinterpret_cast<typename F::Tile*>(keys);
  auto* row = reinterpret_cast<typename F::Block*>(values) + slot * kv.v_cols;
  for (int c = threadIdx.x; c < kv.head_dim; c += blockDim.x) {
    columns[c].rows[slot] = convert(k[c]);
    row[c] = convert(v[c]);
  }
}

// A warp to 32 channels; the channels past the head's end are zero. The scale is rounded to f16 after the codes are chosen.
__device__ void write_q8(const KvLayer& kv, std::byte* keys, std::byte* values, int slot, const float* k, const float* v) {
  __shared__ Act acts[2][8];  // a warp's key and value block
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32, blocks = kv.v_cols / 32;
  for (int b = warp; b < blocks; b += warps) {
    const int c = 32 * b + lane;
    Act &key = acts[0][warp], &value = acts[1][warp];
    quantize_block(c < kv.head_dim ? k[c] : 0.0f, &key);
    quantize_block(c < kv.head_dim ? v[c] : 0.0f, &value);
    __syncwarp();
    auto& tile = reinterpret_cast<Q8::Tile*>(keys)[b];
    tile.q[64 * (lane / 4) + 4 * slot + lane % 4] = key.q[lane];
    reinterpret_cast<int8_t*>(values)[slot * kv.v_cols + c] = value.q[lane];
    if (lane == 0) {
      tile.d[slot] = f16_of_f32(key.d);
      reinterpret_cast<uint16_t*>(values + kPage * kv.v_cols)[slot * blocks + b] = f16_of_f32(value.d);
    }
    __syncwarp();
  }
}

__global__ void kv_write(KvWriteArgs a) {
  wait_for_previous();
  start_next();
  __shared__ float rotated[kMaxHeadDim];
  const int64_t token = blockIdx.x;
  const int head = blockIdx.y, head_dim = a.kv.head_dim, position = a.batch.positions[token];
  if (head >= a.kv.heads) {
    const int64_t at = (token * a.q_heads + head - a.kv.heads) * head_dim;
    rotate_head(a.q + at, a.rotated_q + at, a.q_angles + int64_t(position) * a.dim, head_dim, a.dim);
    return;
  }
  const int64_t at = (token * a.kv.heads + head) * head_dim;
  const float *k = a.k + at, *v = a.v + at;
  if (a.k_angles) {
    rotate_head(k, rotated, a.k_angles + int64_t(position) * a.dim, head_dim, a.dim);
    __syncthreads();
    k = rotated;
  }
  const int32_t page = a.batch.page_id(token, position);
  std::byte *keys = a.kv.k_tile(page, head), *values = a.kv.v_rows(page, head);
  const int slot = position % kPage;
  if (a.kv.format == int(Format::f32))
    write_floats<F32>(a.kv, keys, values, slot, k, v, [](float x) { return x; });
  else if (a.kv.format == int(Format::f16))
    write_floats<F16>(a.kv, keys, values, slot, k, v, [](float x) { return f16_of_f32(x); });
  else if (a.kv.format == int(Format::f8))
    write_floats<F8>(a.kv, keys, values, slot, k, v, [](float x) { return f8_of_f32(x); });
  else
    write_q8(a.kv, keys, values, slot, k, v);
}

struct KvWriteKernel {
  static bool supports(const KvWrite& op, const OpArgs& a) {
    if (a.batch->kv.layout.format == Format::q4_0) return false;
    return !op.rope || (op.q.spec == op.k.spec && op.q.dim == op.k.dim && op.q.spec < kMostRopes);
  }
  static void launch(const KvWrite& op, const OpArgs& a, const LaunchContext& c) {
    KvWriteArgs args{kv_layer(a.batch->kv, op.layer), c.batch, a.in[0].floats(), a.in[1].floats(), nullptr, nullptr, nullptr, nullptr, 0, 0};
    if (op.rope) {
      args.q = a.in[2].floats(), args.rotated_q = a.out[0].out_row(0), args.q_heads = op.q.heads, args.dim = op.q.dim;
      args.k_angles = args.q_angles = c.batch.ropes[op.k.spec];
    }
    chaski::launch("kv_write", {dim3(unsigned(a.in[0].shape.rows), unsigned(args.kv.heads + args.q_heads)), head_threads(args.kv.head_dim), c.stream},
                   kv_write, args);
  }
};

}  // namespace

CudaEntry kv_write_entry() { return cuda_entry<KvWrite, KvWriteKernel>(); }

}  // namespace chaski
