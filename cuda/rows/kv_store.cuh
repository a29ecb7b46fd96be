// Rotates heads and stores them in KV pages, with the bits of KvWrite::write. One warp handles 32
// channels of a head at a time; lane i has channel `first` + i. rows.cu stores heads that a matmul
// left in memory. The matmul of a decode step stores its sums itself (matmul_rows.cuh).
#pragma once
#include "cuda/device/math.cuh"
#include "cuda/table.h"

namespace chaski {

// Returns channel c of a head, rotated as by Rope::pair. angles: cos and sin of each pair at the
// token's position, for the first `dim` channels.
__device__ __forceinline__ float rotate_channel(float x, int c, const float* angles, int dim) {
  const float other = __shfl_xor_sync(kAllLanes, x, 1);
  if (c >= dim) return x;
  const float cos = angles[c & ~1], sin = angles[c | 1];
  return c % 2 == 0 ? fmaf(x, cos, -(other * sin)) : fmaf(other, sin, x * cos);
}

// Channel `first` + lane of a key or query, rotated as by hadamard() in pages of format F. All
// lanes must take part; x is 0 past the head's end.
template <class F>
__device__ __forceinline__ float rotate_channels(float x, int first, int k_dim) {
  if constexpr (PageOf<F>::kRotation != 32) {
    return x;
  } else {
    if (first + 32 > k_dim) return x;
#pragma unroll
    for (int half = 1; half < 32; half *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, x, half);
      x = threadIdx.x & half ? other - x : x + other;
    }
    return x * 0.1767766922712326f;  // 1 / sqrt(32), rounded as by hadamard()
  }
}

// Where one token's head is stored.
struct KvSlot {
  std::byte *keys, *values;
  const float *centre, *scales;  // of this head's keys, or null
  int slot;
  __device__ __forceinline__ KvSlot(const KvState& kv, const Store& to, int head)
      : keys(kv.k_tile(to.page, head)),
        values(kv.v_rows(to.page, head)),
        centre(kv.centre ? kv.centre + head * kv.k_dim : nullptr),
        scales(kv.scales ? kv.scales + head * kv.k_dim : nullptr),
        slot(to.slot) {}
};

// How the pages of a format are written, 32 channels from `first` on. A format without one is not
// supported on devices. `spare`: shared memory of this warp.
template <class F>
struct PageStore;

// Key channel c is column c of a tile whose rows are positions. Value channel c is column c of row
// `slot`.
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

// Channels past the end of the head count as zero. The scale is rounded to f16 after the codes are
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

// Centers, scales and rotates a key as KvWrite::write does.
template <class F>
__device__ __forceinline__ float key_to_store(const KvState& kv, const KvSlot& to, int first,
                                              float x) {
  const int c = first + int(threadIdx.x % 32);
  if (PageOf<F>::kCentered && to.centre && c < kv.k_dim) x = x - to.centre[c];
  if (PageOf<F>::kRotation > 0 && to.scales && c < kv.k_dim) x = x / to.scales[c];
  return rotate_channels<F>(x, first, kv.k_dim);
}

template <class F>
__device__ __forceinline__ void store_if(const KvState& kv, const KvSlot& to, int first, float x,
                                         bool is_key, Act* spare) {
  if constexpr (kHasPages<F>)
    if (kv.format == int(F::kFormat))
      PageStore<F>::store(kv, to, first, is_key ? key_to_store<F>(kv, to, first, x) : x, is_key,
                          spare);
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

// Whether devices support pages of this format.
inline bool has_pages(Format format) {
  bool has = false;
  KvFormats::with(format, [&]<class F>(F) { has = kHasPages<F>; });
  return has;
}

}  // namespace chaski
