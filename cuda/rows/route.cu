// The router of a mixture of experts. A warp takes a row; scores and choices are in shared memory.
// In the soft-max its two halves do the same work, so that the sum follows the CPU's tree of 16.
#include "cuda/device/launch.cuh"
#include "cuda/device/math.cuh"
#include "cuda/entry.h"
#include "ggml-like-tensor/ops/route.h"

namespace chaski {
namespace {

struct RouteArgs {
  Route op;
  const float *x, *bias;  // bias: or null
  int32_t* experts;
  float* weights;
  int n;
};

__device__ __forceinline__ void score(const RouteArgs& a, const float* x, float* scores) {
  if (a.op.score == Route::Score::sigmoid) {
    for (int i = threadIdx.x; i < a.n; i += 32)
      scores[i] = activate_fixed(Activation::sigmoid, x[i]);
    return;
  }
  const int lane = threadIdx.x % 16;
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < a.n; i += 16) most = x[i] > most ? x[i] : most;
  most = tree_max(most);
  for (int i = lane; i < a.n; i += 16) sum += exp_fixed(x[i] - most);
  sum = tree_sum(sum);
  for (int i = threadIdx.x; i < a.n; i += 32) scores[i] = exp_fixed(x[i] - most) / sum;
}

// A lane takes a group.
__device__ __forceinline__ void drop_groups(const RouteArgs& a, float* choice, float* ranks) {
  const int size = a.n / a.op.groups;
  for (int g = threadIdx.x; g < a.op.groups; g += 32)
    ranks[g] = a.op.rank_of(choice + g * size, size);
  __syncthreads();
  for (int g = threadIdx.x; g < a.op.groups; g += 32)
    if (a.op.drops(ranks, g))
      for (int i = g * size; i < (g + 1) * size; ++i) choice[i] = -INFINITY;
  __syncthreads();
}

__global__ void route(RouteArgs a) {
  wait_for_previous();
  start_next();
  auto* scores = dynamic_shared<float>();
  float *choice = scores + a.n, *ranks = choice + a.n;
  score(a, a.x + int64_t(blockIdx.x) * a.n, scores);
  __syncthreads();
  for (int i = threadIdx.x; i < a.n; i += 32)
    choice[i] = a.bias ? scores[i] + a.bias[i] : scores[i];
  __syncthreads();
  if (a.op.groups > 1) drop_groups(a, choice, ranks);
  int32_t* experts = a.experts + int64_t(blockIdx.x) * a.op.k;
  float* weights = a.weights + int64_t(blockIdx.x) * a.op.k;
  uint64_t last = 0;  // the key chosen last, as in top_k
  float sum = 0;
  for (int i = 0; i < a.op.k; ++i) {
    uint64_t best = 0;
    for (int c = threadIdx.x; c < a.n; c += 32) {
      const uint64_t key = uint64_t(TopK::rank(choice[c])) << 32 | uint32_t(~uint32_t(c));
      if ((i == 0 || key < last) && key > best) best = key;
    }
#pragma unroll
    for (int n = 16; n > 0; n /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, best, n);
      best = best > other ? best : other;
    }
    last = best;
    const auto expert = int32_t(~uint32_t(best));
    sum = sum + scores[expert];
    if (threadIdx.x == 0) experts[i] = expert / a.op.sharing, weights[i] = scores[expert];
  }
  if (threadIdx.x > 0) return;
  sum = sum < Route::kLeastSum ? Route::kLeastSum : sum;
  for (int i = 0; i < a.op.k; ++i)
    weights[i] = (a.op.normalised ? weights[i] / sum : weights[i]) * a.op.scale;
}

struct RouteKernel {
  static size_t shared_bytes(const Route& op, const OpArgs& a) {
    return (2 * size_t(a.in[0].shape.cols) + size_t(op.groups)) * sizeof(float);
  }
  static bool supports(const Route& op, const OpArgs& a) {
    return shared_bytes(op, a) <= 48 * 1024;
  }
  static void launch(const Route& op, const OpArgs& a, const LaunchContext& c) {
    const RouteArgs args{op,
                         a.in[0].floats(),
                         op.biases(a),
                         a.out[0].out_ints(0),
                         a.out[1].out_row(0),
                         int(a.in[0].shape.cols)};
    chaski::launch("route", {dim3(unsigned(a.in[0].shape.rows)), 32, c.stream, shared_bytes(op, a)},
                   route, args);
  }
};

}  // namespace

template <>
struct CudaKernel<Route> : RouteKernel {};
template CudaEntry cuda_entry<Route>();

}  // namespace chaski
