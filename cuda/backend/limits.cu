// Measures what the device can do: copies within device memory, and loops of one kind of arithmetic
// in registers. A warp has eight independent sums (fma: sixteen a thread), so that no instruction
// waits for the previous one.
#include <algorithm>

#include "cuda/backend/limits.cuh"
#include "cuda/device/mma.cuh"

namespace chaski {
namespace {

constexpr int kWarps = 8, kBlocksPerMultiprocessor = 2, kSums = 8;
constexpr double kTrySeconds = 0.01;
constexpr int kTries = 5;

struct Int8 {
  using Sum = int32_t;
  static constexpr double kOperations = 2.0 * 16 * 8 * 32;  // of one product of a warp
  static __device__ __forceinline__ void multiply(int32_t (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    mma_s8(d, a, b);
  }
};
struct F16Sums {
  using Sum = float;
  static constexpr double kOperations = 2.0 * 16 * 8 * 16;
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    mma_f16(d, a, b);
  }
};
struct F32Sums {
  using Sum = float;
  static constexpr double kOperations = 2.0 * 4 * 32;
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] = fmaf(__uint_as_float(a[i]), __uint_as_float(b[i % 2]), d[i]);
  }
};

// A number from 1/128 to 2, or its negative, in both halves of a word as f16: random sign, exponent
// and mantissa. As f32 it is finite too. Factors of zero would take less power than real ones, so
// the clock would be higher than it is during a pass.
__device__ __forceinline__ uint32_t factor(uint32_t seed) {
  const uint32_t bits = seed * 2654435761u;
  return (bits & 0x80008000) | (0x3c003c00 - (bits >> 3 & 0x1c001c00)) | (bits & 0x03ff03ff);
}

// `zero` is 0, which the compiler cannot know.
template <class Kind>
__global__ void __launch_bounds__(32 * kWarps)
    multiply_in_registers(int rounds, uint32_t zero, typename Kind::Sum* out) {
  wait_for_previous();
  start_next();
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = factor(zero + 8 * threadIdx.x + i);
  for (int i = 0; i < 2; ++i) b[i] = factor(zero + 8 * threadIdx.x + 4 + i);
  typename Kind::Sum d[kSums][4] = {};
  for (int r = 0; r < rounds; ++r)
#pragma unroll
    for (int n = 0; n < kSums; ++n) Kind::multiply(d[n], a, b);
  typename Kind::Sum sum = 0;
  for (int n = 0; n < kSums; ++n)
    for (int i = 0; i < 4; ++i) sum += d[n][i];
  if (threadIdx.x == blockDim.x + zero) out[0] = sum;  // never happens
}

template <class Work>
double seconds_of(const CudaStream& stream, Work work) {
  CudaEvent start(true), end(true);
  start.record(stream);
  work();
  end.record(stream);
  end.wait();
  return end.seconds_since(start);
}

// Operations per second. Doubles the rounds until a run takes kTrySeconds, then takes the best of
// kTries runs.
template <class Kind>
double rate_of(const CudaStream& stream, int multiprocessors, typename Kind::Sum* out) {
  const dim3 grid(unsigned(kBlocksPerMultiprocessor * multiprocessors));
  const auto seconds = [&](int rounds) {
    return seconds_of(stream, [&] {
      launch("limits", {grid, 32 * kWarps, stream}, multiply_in_registers<Kind>, rounds, 0u, out);
    });
  };
  int rounds = 1;
  while (seconds(rounds) < kTrySeconds && rounds < 1 << 24) rounds *= 2;
  double best = seconds(rounds);
  for (int i = 1; i < kTries; ++i) best = std::min(best, seconds(rounds));
  return Kind::kOperations * kSums * kWarps * grid.x * rounds / best;
}

double copy_rate(const CudaStream& stream) {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const size_t bytes = std::min(size_t(512) << 20, free / 64) / 256 * 256;
  if (bytes == 0) return 0;
  const DeviceBytes from(bytes, "a copy"), to(bytes, "a copy");
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const double seconds = seconds_of(
        stream, [&] { stream.copy(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice); });
    if (seconds > 0) best = std::max(best, 2.0 * double(bytes) / seconds);
  }
  return best;
}

}  // namespace

CudaLimits cuda_limits(const CudaStream& stream, int multiprocessors) {
  const DeviceBytes out(256, "a sum");
  CudaLimits l;
  l.copy = copy_rate(stream);
  l.int8 = rate_of<Int8>(stream, multiprocessors, out.as<int32_t>());
  l.f16 = rate_of<F16Sums>(stream, multiprocessors, out.as<float>());
  l.f32 = rate_of<F32Sums>(stream, multiprocessors, out.as<float>());
  return l;
}

}  // namespace chaski
