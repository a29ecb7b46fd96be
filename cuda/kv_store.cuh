// Heads, 32 channels at a time, by one warp whose lane i holds channel `first` + i: rotated, and
// stored in a page with the bits of KvWrite::write. rows.cu stores what a matmul left in
// memory; the matmul of a decode step stores its sums itself (matmul_rows.cuh).
#pragma once
#include "cuda/math.cuh"
#include "cuda/table.h"
#include "quant/floats.h"
#include "quant/q8.h"

namespace chaski {

// Channel c of a head, rotated as Rope::pair does. angles: cos, sin of each pair at the token's
// position, for the first `dim` channels.
__device__ __forceinline__ float rotate_channel(float x, int c, const float* angles, int dim) {
  const float other = __shfl_xor_sync(kAllLanes, x, 1);
  if (c >= dim) return x;
  const float cos = angles[c & ~1], sin = angles[c | 1];
  return c % 2 == 0 ? fmaf(x, cos, -(other * sin)) : fmaf(other, sin, x * cos);
}

// Where a head of one token goes.
struct KvSlot {
  std::byte *keys, *values;
  int slot;
  __device__ __forceinline__ KvSlot(const KvState& kv, int64_t token, int head, int cell)
      : slot(cell % kPage) {
    const int32_t page = kv.page_id(token, cell);
    keys = kv.k_tile(page, head), values = kv.v_rows(page, head);
  }
};

// Key channel c lies in column c of a tile whose rows are positions, value channel c in row `slot`.
template <class F>
__device__ __forceinline__ void store_float(const KvState& kv, const KvSlot& to, int c, float x,
                                            bool is_key) {
  typename F::Block bits;
  if constexpr (std::is_same_v<F, F32>)
    bits = x;
  else if constexpr (std::is_same_v<F, F16>)
    bits = f16_of_f32(x);
  else
    bits = f8_of_f32(x);
  if (is_key)
    reinterpret_cast<typename F::Tile*>(to.keys)[c].rows[to.slot] = bits;
  else
    reinterpret_cast<typename F::Block*>(to.values)[to.slot * kv.v_cols + c] = bits;
}

// Channels past the head's end count as zero. The scale is rounded to f16 after the codes are
// chosen. spare: the warp's, in shared memory.
__device__ __forceinline__ void store_q8(const KvState& kv, const KvSlot& to, int first, float x,
                                         bool is_key, Act* spare) {
  const int lane = threadIdx.x % 32, b = first / 32;
  quantize_block(first + lane < (is_key ? kv.k_dim : kv.v_dim) ? x : 0.0f, spare);
  __syncwarp();
  auto& tile = reinterpret_cast<Q8::Tile*>(to.keys)[b];
  if (is_key)
    tile.q[64 * (lane / 4) + 4 * to.slot + lane % 4] = spare->q[lane];
  else
    reinterpret_cast<int8_t*>(to.values)[to.slot * kv.v_cols + first + lane] = spare->q[lane];
  if (lane == 0) {
    const uint16_t d = f16_of_f32(spare->d);
    if (is_key)
      tile.d[to.slot] = d;
    else
      reinterpret_cast<uint16_t*>(to.values + kPage * kv.v_cols)[to.slot * (kv.v_cols / 32) + b] =
          d;
  }
  __syncwarp();
}

__device__ __forceinline__ void store_channels(const KvState& kv, const KvSlot& to, int first,
                                               float x, bool is_key, Act* spare) {
  const int c = first + int(threadIdx.x % 32);
  if (kv.format == int(Format::q8)) return store_q8(kv, to, first, x, is_key, spare);
  if (c >= (is_key ? kv.k_dim : kv.v_dim)) return;
  if (kv.format == int(Format::f32))
    store_float<F32>(kv, to, c, x, is_key);
  else if (kv.format == int(Format::f16))
    store_float<F16>(kv, to, c, x, is_key);
  else
    store_float<F8>(kv, to, c, x, is_key);
}

}  // namespace chaski
