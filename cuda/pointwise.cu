// The ops that go over a row value by value, in one file: a file costs nvcc more than its ops do.
#include "cuda/math.cuh"
#include "cuda/norm.cuh"
#include "cuda/table.h"

namespace chaski {
namespace {

// Elementwise a + b, a * b.

__global__ void binary(Binary::Kind kind, const float* a, const float* b, float* y, int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = kind == Binary::Kind::add ? a[i] + b[i] : a[i] * b[i];
}

struct BinaryKernel {
  static void launch(const Binary& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("binary", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, binary, op.kind,
                   a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0), n);
  }
};

// Elementwise silu and gelu, with the CPU's polynomials (cuda/math.cuh).

__global__ void unary(Activation kind, const float* x, float* y, int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = activate_fixed(kind, x[i]);
}

struct UnaryKernel {
  static void launch(const Unary& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("unary", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, unary, op.kind,
                   a.in[0].floats(), a.out[0].out_row(0), n);
  }
};

// Row-wise soft-max of scale * x: a warp to a row, whose two halves do the same, so that the sum is
// the CPU's tree of 16.

__global__ void soft_max(const float* x, float* y, int64_t n, float scale) {
  wait_for_previous();
  start_next();
  x += blockIdx.x * n, y += blockIdx.x * n;
  const int lane = threadIdx.x % 16;
  float most = -INFINITY, sum = 0;
  for (int64_t i = lane; i < n; i += 16) most = x[i] * scale > most ? x[i] * scale : most;
  most = tree_max(most);
  for (int64_t i = lane; i < n; i += 16) sum += exp_fixed(x[i] * scale - most);
  sum = tree_sum(sum);
  for (int64_t i = threadIdx.x; i < n; i += 32) y[i] = exp_fixed(x[i] * scale - most) / sum;
}

struct SoftMaxKernel {
  static void launch(const SoftMax& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("soft_max", {dim3(unsigned(a.in[0].shape.rows)), 32, c.stream}, soft_max,
                   a.in[0].floats(), a.out[0].out_row(0), a.in[0].shape.cols, op.scale);
  }
};

// A short convolution over the tokens of each sequence: a thread to a channel of a token. The first
// taps - 1 tokens of a sequence look into its state: the thread of the very first does them all,
// and then, when nobody needs it any more, puts the last inputs there.

struct ShortConvArgs {
  const float *x, *w;
  float* y;
  std::byte* states;  // of page 0
  int64_t page_bytes;
  const int32_t *cells, *tables, *table_start;
  int tokens, back, cols;  // back: taps - 1

  __device__ __forceinline__ bool together(int t, int other) const {
    return table_start[t] == table_start[other];
  }
  // Of token t, whose sequence has at least min(back, before) tokens in front of it here.
  __device__ __forceinline__ void one(int t, int before, int c, const float* kept) const {
    float sum = 0;
    for (int ago = min(back, cells[t]); ago >= 0; --ago) {
      const float input = ago <= before ? x[int64_t(t - ago) * cols + c]
                                        : kept[int64_t((cells[t] - ago) % back) * cols + c];
      sum = fmaf(w[int64_t(back - ago) * cols + c], input, sum);
    }
    y[int64_t(t) * cols + c] = sum;
  }
};

__global__ void short_conv(ShortConvArgs a) {
  wait_for_previous();
  start_next();
  const int t = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
  if (c >= a.cols) return;
  int before = 0;
  while (before < a.back && t > before && a.together(t - before - 1, t)) ++before;
  if (before == a.back) return a.one(t, before, c, nullptr);
  if (before > 0) return;
  float* kept = reinterpret_cast<float*>(a.states + a.tables[a.table_start[t]] * a.page_bytes);
  // Tables begin one behind the other, so the sequence's end is where they first change.
  int end = t + 1;
  for (int high = a.tokens; end < high;) {
    const int middle = (end + high) / 2;
    if (a.together(t, middle))
      end = middle + 1;
    else
      high = middle;
  }
  for (int i = t; i < end && i - t < a.back; ++i) a.one(i, i - t, c, kept);
  for (int i = max(t, end - a.back); i < end; ++i)
    kept[int64_t(a.cells[i] % a.back) * a.cols + c] = a.x[int64_t(i) * a.cols + c];
}

struct ShortConvKernel {
  static const RecurrentView& view(const ShortConv& op, const OpArgs& a) {
    return a.batch->states.recurrent[size_t(op.state)];
  }
  static bool supports(const ShortConv& op, const OpArgs& a) { return has_place(view(op, a)); }
  static void launch(const ShortConv& op, const OpArgs& a, const LaunchContext& c) {
    const RecurrentView& s = view(op, a);
    const ShortConvArgs args{a.in[0].floats(),
                             a.in[1].floats(),
                             a.out[0].out_row(0),
                             s.block(0),
                             int64_t(s.page_bytes),
                             c.batch.cells,
                             c.batch.tables,
                             c.batch.table_start[s.pool],
                             int(a.in[0].shape.rows),
                             op.taps - 1,
                             op.cols};
    chaski::launch("short_conv",
                   {dim3(unsigned(args.tokens), unsigned((op.cols + 127) / 128)), 128, c.stream},
                   short_conv, args);
  }
};

// Norms, a block to a row, which lies in shared memory between the passes. The sums are over many
// threads in a fixed tree of their own, which depends on the row's length alone (the CPU's tree of
// 16 would be a chain of n / 16 fma).

__global__ void __launch_bounds__(32 * kMostSegments) norm(NormRow a) {
  __shared__ float part[32];
  for (int64_t i = threadIdx.x * 32; i < a.n; i += blockDim.x * 32) {
    prefetch_l2(a.weight + i);
    if (a.bias) prefetch_l2(a.bias + i);
  }
  wait_for_previous();
  start_next();
  norm_row(a, blockIdx.x, dynamic_shared<float>(), part);
}

struct NormKernel {
  static constexpr int64_t kMostColumns = 48 * 1024;  // shared memory
  static bool supports(const Norm&, const OpArgs& a) { return a.in[0].shape.cols <= kMostColumns; }
  static void launch(const Norm& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.cols;
    chaski::launch(
        "norm",
        {dim3(unsigned(a.in[0].shape.rows)), norm_threads(n), c.stream, size_t(n) * sizeof(float)},
        norm, norm_row_of(op, a));
  }
};

}  // namespace

CudaEntry binary_entry() { return cuda_entry<Binary, BinaryKernel>(); }
CudaEntry unary_entry() { return cuda_entry<Unary, UnaryKernel>(); }
CudaEntry soft_max_entry() { return cuda_entry<SoftMax, SoftMaxKernel>(); }
CudaEntry short_conv_entry() { return cuda_entry<ShortConv, ShortConvKernel>(); }
CudaEntry norm_entry() { return cuda_entry<Norm, NormKernel>(); }

}  // namespace chaski
