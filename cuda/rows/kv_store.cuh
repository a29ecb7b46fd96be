// Heads, 32 channels at a time, by one warp whose lane i holds channel `first` + i: rotated, and
// stored in a page with the bits of KvWrite::write. rows.cu stores what a matmul left in
// memory; the matmul of a decode step stores its sums itself (matmul_rows.cuh).
#pragma once
#include "cuda/device/math.cuh"
#include "cuda/table.h"

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
  __device__ __forceinline__ KvSlot(const KvState& kv, const Store& to, int head)
      : keys(kv.k_tile(to.page, head)), values(kv.v_rows(to.page, head)), slot(to.slot) {}
};

// How a format's pages are written: 32 channels from `first` on. Absent: the device has none of it.
// `spare`: the warp's, in shared memory.
template <class F>
struct PageStore;

// Key channel c lies in column c of a tile whose rows are positions, value channel c in row `slot`.
template <class F>
requires F::kFloat struct PageStore<F> {
  static __device__ __forceinline__ void store(const KvState& kv, const KvSlot& to, int first,
                                               float x, bool is_key, Act*) {
    const int c = first + int(threadIdx.x % 32);
    if (c >= (is_key ? kv.k_dim : kv.v_dim)) return;
    if (is_key)
      reinterpret_cast<typename F::Tile*>(to.keys)[c].rows[to.slot] = F::of(x);
    else
      reinterpret_cast<typename F::Block*>(to.values)[to.slot * kv.v_cols + c] = F::of(x);
  }
};

// Channels past the head's end count as zero. The scale is rounded to f16 after the codes are
// chosen.
template <>
struct PageStore<Q8> {
  static __device__ __forceinline__ void store(const KvState& kv, const KvSlot& to, int first,
                                               float x, bool is_key, Act* spare) {
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
};

template <class F>
constexpr bool kHasPages = requires {
  sizeof(PageStore<F>);
};

template <class F>
__device__ __forceinline__ void store_if(const KvState& kv, const KvSlot& to, int first, float x,
                                         bool is_key, Act* spare) {
  if constexpr (kHasPages<F>)
    if (kv.format == int(F::kFormat)) PageStore<F>::store(kv, to, first, x, is_key, spare);
}
template <class... F>
__device__ __forceinline__ void store_as(FormatList<F...>, const KvState& kv, const KvSlot& to,
                                         int first, float x, bool is_key, Act* spare) {
  (store_if<F>(kv, to, first, x, is_key, spare), ...);
}
__device__ __forceinline__ void store_channels(const KvState& kv, const KvSlot& to, int first,
                                               float x, bool is_key, Act* spare) {
  store_as(KvFormats{}, kv, to, first, x, is_key, spare);
}

// Whether the device has pages of a format at all.
inline bool has_pages(Format format) {
  bool has = false;
  KvFormats::with(format, [&]<class F>(F) { has = kHasPages<F>; });
  return has;
}

}  // namespace chaski
