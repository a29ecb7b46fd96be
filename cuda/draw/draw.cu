// Draws tokens in two steps. It finds the top_k largest logits in the sampler's order (larger
// first, then the smaller id), then computes a little with them. The order and the id together are
// one 64-bit key, so no two keys are equal and every search order finds the same candidates:
//
//   logits, slices of 1024 --sort--> 64 keys each --slices of 1024, sort--> 64 each --> ...
//   --> at most 1024, sort, draw
//
// 128 k logits take 126 blocks, then 8, then 1. Each block does a bitonic sort of 55 steps in
// shared memory.
#include "cuda/device/launch.cuh"
#include "cuda/draw/draw.cuh"
#include "ggml-like-tensor/noise.h"

namespace chaski {
namespace {

constexpr int kSlice = 1024, kThreads = kSlice / 2;
// Larger than the key of any finite logit. 0 is smaller than all keys and means no logit.
constexpr uint64_t kNotFinite = ~uint64_t(0);

int64_t slices_of(int64_t n) { return (n + kSlice - 1) / kSlice; }

// Maps floats to unsigned numbers in the same order; both zeros give the same number.
__device__ uint64_t key_of(float logit, uint32_t id) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t(ordered) << 32 | uint32_t(~id);
}
__device__ uint32_t id_of(uint64_t key) { return ~uint32_t(key); }
__device__ float logit_of(uint64_t key) {
  const uint32_t ordered = uint32_t(key >> 32);
  return __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

// Sorts, largest first (Batcher 1968). All threads of the block take part; the keys are visible to
// all on return.
__device__ void sort_keys(uint64_t* keys) {
  for (int run = 2; run <= kSlice; run *= 2)
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      const int i = 2 * threadIdx.x - (threadIdx.x & (step - 1)), j = i + step;
      const uint64_t a = keys[i], b = keys[j];
      if ((a < b) == ((i & run) == 0)) keys[i] = b, keys[j] = a;
    }
  __syncthreads();
}

// Selects the largest keys of a slice of logits.
__global__ void __launch_bounds__(kThreads)
    select_logits(const CudaDraw* settings, const float* logits, int64_t columns, uint64_t* out) {
  wait_for_previous();
  start_next();
  __shared__ uint64_t keys[kSlice];
  const int64_t row = blockIdx.y;
  for (int i = threadIdx.x; i < kSlice; i += kThreads) {
    const int64_t id = int64_t(blockIdx.x) * kSlice + i;
    keys[i] = 0;
    if (id >= columns) continue;
    const float x = logits[row * columns + id];
    if (x * 0.0f != 0.0f)
      keys[i] = kNotFinite;
    else if (id < settings[row].vocab)
      keys[i] = key_of(x, uint32_t(id));
  }
  sort_keys(keys);
  if (threadIdx.x < kMostTopK)
    out[(row * gridDim.x + blockIdx.x) * kMostTopK + threadIdx.x] = keys[threadIdx.x];
}

__device__ void load_keys(const uint64_t* in, int64_t n, int64_t first, uint64_t* keys) {
  for (int i = threadIdx.x; i < kSlice; i += kThreads) keys[i] = first + i < n ? in[first + i] : 0;
}

// Selects the largest keys of a slice of keys.
__global__ void __launch_bounds__(kThreads)
    select_keys(const uint64_t* in, int64_t n, uint64_t* out) {
  wait_for_previous();
  start_next();
  __shared__ uint64_t keys[kSlice];
  const int64_t row = blockIdx.y;
  load_keys(in + row * n, n, int64_t(blockIdx.x) * kSlice, keys);
  sort_keys(keys);
  if (threadIdx.x < kMostTopK)
    out[(row * gridDim.x + blockIdx.x) * kMostTopK + threadIdx.x] = keys[threadIdx.x];
}

// Sampler::draw over the sorted candidates: top_k, then top_p and min_p, then the largest logit / T
// + noise. One thread adds the sums in the host's order. exp and noise cost more, so each candidate
// has its own thread for them.
__global__ void __launch_bounds__(kThreads)
    draw_token(const CudaDraw* settings, const uint64_t* in, int64_t n, DeviceBatch batch,
               int32_t* tokens) {
  wait_for_previous();
  start_next();
  __shared__ uint64_t keys[kSlice];
  __shared__ double weight[kMostTopK], score[kMostTopK];
  const int64_t row = blockIdx.x;
  load_keys(in + row * n, n, 0, keys);
  sort_keys(keys);
  const CudaDraw s = settings[row];
  const bool greedy = s.temperature == 0;
  if (threadIdx.x < kMostTopK && !greedy) {
    const uint64_t key = keys[threadIdx.x];
    const double logit = logit_of(key);
    const uint64_t position = uint64_t(batch.positions[batch.outputs[row]]) + 1;
    weight[threadIdx.x] = exp64(logit - double(logit_of(keys[0])));
    score[threadIdx.x] = logit / s.temperature + gumbel(s.seed, position, id_of(key));
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  int best = 0;
  if (!greedy) {
    int k = 0, kept = 0;
    double sum = 0, before = 0;
    while (k < s.top_k && keys[k] != 0) sum += weight[k++];
    for (; kept < k; ++kept) {
      if (kept > 0 && (before >= s.top_p * sum || weight[kept] < s.min_p)) break;
      before += weight[kept];
    }
    for (int i = 1; i < kept; ++i)
      if (score[i] > score[best]) best = i;
  }
  tokens[row] = keys[0] == kNotFinite ? -1 : int32_t(id_of(keys[best]));
}

}  // namespace

bool cuda_can_draw(const CudaDraw& d) {
  return d.temperature == 0 || (d.top_k >= 1 && d.top_k <= kMostTopK);
}

// Two buffers are used in turns; the first one is the largest.
size_t draw_scratch(int64_t rows, int64_t columns) {
  const int64_t first = slices_of(columns) * kMostTopK, second = slices_of(first) * kMostTopK;
  return size_t(rows * (first + second)) * sizeof(uint64_t);
}

void launch_draw(const LaunchContext& c, const CudaDraw* settings, const float* logits,
                 int64_t rows, int64_t columns, int32_t* tokens) {
  auto* keys = reinterpret_cast<uint64_t*>(c.scratch);
  int64_t slices = slices_of(columns);
  uint64_t* spare = keys + rows * slices * kMostTopK;
  launch("select_logits", {dim3{unsigned(slices), unsigned(rows)}, kThreads, c.stream},
         select_logits, settings, logits, columns, keys);
  int64_t n = slices * kMostTopK;
  while (n > kSlice) {
    slices = slices_of(n);
    launch("select_keys", {dim3{unsigned(slices), unsigned(rows)}, kThreads, c.stream}, select_keys,
           keys, n, spare);
    std::swap(keys, spare);
    n = slices * kMostTopK;
  }
  launch("draw_token", {dim3(unsigned(rows)), kThreads, c.stream}, draw_token, settings, keys, n,
         c.batch, tokens);
}

}  // namespace chaski
