// The ops that handle a row value by value. They share a file, because a file costs nvcc more time
// than its ops do.
#include "cuda/device/math.cuh"
#include "cuda/entry.h"
#include "cuda/rows/norm.cuh"

namespace chaski {
namespace {

// Elementwise a + b, a * b, gpt-oss's gate (ops/binary.h).

// b has n numbers, or fewer: one row, for each of the rows of a.
__global__ void binary(Binary::Kind kind, const float* a, const float* b, int64_t of_b, float* y,
                       int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = a[i], with = b[of_b < n ? i % of_b : i];
  y[i] = kind == Binary::Kind::add   ? x + with
         : kind == Binary::Kind::mul ? x * with
                                     : clamped_swiglu(x, with);
}

struct BinaryKernel {
  static void launch(const Binary& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("binary", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, binary, op.kind,
                   a.in[0].floats(), a.in[1].floats(), a.in[1].shape.rows * a.in[1].shape.cols,
                   a.out[0].out_row(0), n);
  }
};

// Elementwise activations, with the CPU's polynomials (cuda/device/math.cuh).

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

// xIELU, with the CPU's order of operations.

__global__ void xielu(Xielu op, const float* x, float* y, int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float e = exp_fixed(x[i] < op.eps ? x[i] : op.eps);
  const float curve = 0.0f < x[i] ? op.positive * (x[i] * x[i]) : op.negative * (e - 1.0f - x[i]);
  y[i] = fmaf(op.beta, x[i], curve);
}

struct XieluKernel {
  static void launch(const Xielu& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("xielu", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, xielu, op,
                   a.in[0].floats(), a.out[0].out_row(0), n);
  }
};

// Scales by a factor, then bounds by tanh, then clips.

__global__ void scale(Scale op, const float* x, float* y, int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float scaled = x[i] * op.factor;
  if (op.cap > 0) scaled = op.cap * tanh_fixed(scaled / op.cap);
  if (op.clip > 0) scaled = scaled < -op.clip ? -op.clip : scaled > op.clip ? op.clip : scaled;
  y[i] = scaled;
}

struct ScaleKernel {
  static void launch(const Scale& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("scale", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, scale, op,
                   a.in[0].floats(), a.out[0].out_row(0), n);
  }
};

// Adds rows that are next to each other, each times its weight, from the first to the last.

__global__ void mix(const float* x, const float* weights, float* y, int64_t cols, int chosen) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x, first = blockIdx.x * chosen;
  if (i >= cols) return;
  float sum = 0;
  for (int j = 0; j < chosen; ++j) sum = fmaf(weights[first + j], x[(first + j) * cols + i], sum);
  y[blockIdx.x * cols + i] = sum;
}

struct MixKernel {
  static void launch(const Mix&, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.in[0].shape.cols;
    chaski::launch(
        "mix", {dim3(unsigned(a.in[1].shape.rows), unsigned((cols + 255) / 256)), 256, c.stream},
        mix, a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0), cols,
        int(a.in[1].shape.cols));
  }
};

// Copies some columns of every row.

__global__ void columns(const float* x, float* y, int64_t cols, int64_t first, int64_t count) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x;
  if (i < count) y[blockIdx.x * count + i] = x[blockIdx.x * cols + first + i];
}

struct ColumnsKernel {
  static void launch(const Columns& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch(
        "columns",
        {dim3(unsigned(a.in[0].shape.rows), unsigned((op.count + 255) / 256)), 256, c.stream},
        columns, a.in[0].floats(), a.out[0].out_row(0), a.in[0].shape.cols, op.first, op.count);
  }
};

// Puts the heads' slices of two rows together.

__global__ void join(const float* a, const float* b, float* y, int64_t cols, int64_t n, int64_t m) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x, heads = cols / (n + m),
                head = i / (n + m), c = i % (n + m), row = blockIdx.x;
  if (i < cols)
    y[row * cols + i] =
        c < n ? a[(row * heads + head) * n + c] : b[(row * heads + head) * m + c - n];
}

struct JoinKernel {
  static void launch(const Join& op, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.out[0].shape.cols;
    chaski::launch(
        "join", {dim3(unsigned(a.in[0].shape.rows), unsigned((cols + 255) / 256)), 256, c.stream},
        join, a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0), cols,
        a.in[0].shape.cols / op.heads, a.in[1].shape.cols / op.heads);
  }
};

// Copies the columns in another order.

__global__ void reorder(const float* x, const float* order, float* y, int64_t cols) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x;
  if (i < cols) y[blockIdx.x * cols + i] = x[blockIdx.x * cols + Reorder::column(order[i], cols)];
}

struct ReorderKernel {
  static void launch(const Reorder&, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.in[0].shape.cols;
    chaski::launch(
        "reorder",
        {dim3(unsigned(a.in[0].shape.rows), unsigned((cols + 255) / 256)), 256, c.stream}, reorder,
        a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0), cols);
  }
};

// Copies some columns out, and the row with zeros in their place.

__global__ void set_aside(const float* x, const float* numbers, float* rest, float* taken,
                          int64_t cols, int64_t count) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x, row = blockIdx.x;
  x += row * cols;
  if (i < count) taken[row * count + i] = x[Reorder::column(numbers[i], cols)];
  if (i >= cols) return;
  bool stays = true;
  for (int64_t k = 0; k < count; ++k) stays = stays && Reorder::column(numbers[k], cols) != i;
  rest[row * cols + i] = stays ? x[i] : 0.0f;
}

struct SetAsideKernel {
  static void launch(const SetAside&, const OpArgs& a, const LaunchContext& c) {
    const int64_t cols = a.in[0].shape.cols;
    chaski::launch(
        "set_aside",
        {dim3(unsigned(a.in[0].shape.rows), unsigned((cols + 255) / 256)), 256, c.stream},
        set_aside, a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0), a.out[1].out_row(0),
        cols, a.in[1].shape.cols);
  }
};

// Adds values, each times the row's weight for it, from the first to the last.

struct BlendArgs {
  const float *x[7], *weights;
  float* y;
  int64_t cols, weight_cols;
  int n;
};

__global__ void blend(BlendArgs a) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x, row = blockIdx.x;
  if (i >= a.cols) return;
  float sum = 0;
  for (int j = 0; j < a.n; ++j)
    sum = fmaf(a.weights[row * a.weight_cols + j], a.x[j][row * a.cols + i], sum);
  a.y[row * a.cols + i] = sum;
}

struct BlendKernel {
  static void launch(const Blend& op, const OpArgs& a, const LaunchContext& c) {
    BlendArgs args{};
    args.n = a.n_in - 1;
    for (int j = 0; j < args.n; ++j) args.x[j] = a.in[j].floats();
    args.weights = a.in[args.n].floats() + op.first, args.weight_cols = a.in[args.n].shape.cols;
    args.y = a.out[0].out_row(0), args.cols = a.in[0].shape.cols;
    chaski::launch(
        "blend",
        {dim3(unsigned(a.in[0].shape.rows), unsigned((args.cols + 255) / 256)), 256, c.stream},
        blend, args);
  }
};

// The mean of products. A warp takes a row; its two halves do the same work, so that sums follow
// the CPU's tree of 16.

// `next_b`: from a row of b to the next; 0: all rows share one.
__global__ void mean_product(const float* a, const float* b, float* y, int64_t n, int64_t next_b) {
  wait_for_previous();
  start_next();
  a += blockIdx.x * n, b += blockIdx.x * next_b;
  float sum = 0;
  for (int64_t i = threadIdx.x % 16; i < n; i += 16) sum = fmaf(a[i], b[i], sum);
  sum = tree_sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum / float(n);
}

struct MeanProductKernel {
  static void launch(const MeanProduct&, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("mean_product", {dim3(unsigned(a.in[0].shape.rows)), 32, c.stream}, mean_product,
                   a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0), a.in[0].shape.cols,
                   a.in[1].shape.rows == 1 ? int64_t{0} : a.in[1].shape.cols);
  }
};

// Rounds rows to integers with a unit for each row; a warp takes a row.

__global__ void round_rows(const float* x, float* whole, float* unit, int64_t n) {
  wait_for_previous();
  start_next();
  x += blockIdx.x * n, whole += blockIdx.x * n;
  float most = RoundRows::kSmallest;
  bool finite = true;
  for (int64_t i = threadIdx.x % 16; i < n; i += 16) {
    most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    finite = finite && x[i] * 0.0f == 0.0f;
  }
  most = tree_max(most);
  finite = __all_sync(kAllLanes, finite);
  const float inverse = 127.0f / most, nan = __int_as_float(0x7fc00000);
  for (int64_t i = threadIdx.x; i < n; i += 32)
    whole[i] = finite ? float(__float2int_rn(x[i] * inverse)) : nan;
  if (threadIdx.x == 0) unit[blockIdx.x] = finite ? most / 127.0f : nan;
}

struct RoundRowsKernel {
  static void launch(const RoundRows&, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("round_rows", {dim3(unsigned(a.in[0].shape.rows)), 32, c.stream}, round_rows,
                   a.in[0].floats(), a.out[0].out_row(0), a.out[1].out_row(0), a.in[0].shape.cols);
  }
};

// Finds the k largest values of a row one after another, with one warp.

__global__ void top_k(const float* x, int32_t* columns, float* values, int64_t cols, int k) {
  wait_for_previous();
  start_next();
  x += blockIdx.x * cols, columns += blockIdx.x * k, values += blockIdx.x * k;
  uint64_t last = 0;  // the key chosen last
  for (int i = 0; i < k; ++i) {
    // the rank is above the column; of equal ranks the lower column has the larger key
    uint64_t best = 0;
    for (int64_t c = threadIdx.x; c < cols; c += 32) {
      const uint64_t key = uint64_t(TopK::rank(x[c])) << 32 | uint32_t(~uint32_t(c));
      if ((i == 0 || key < last) && key > best) best = key;
    }
#pragma unroll
    for (int n = 16; n > 0; n /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, best, n);
      best = best > other ? best : other;
    }
    last = best;
    const auto column = int32_t(~uint32_t(best));
    if (threadIdx.x == 0) columns[i] = column, values[i] = x[column];
  }
}

struct TopKKernel {
  static void launch(const TopK& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("top_k", {dim3(unsigned(a.in[0].shape.rows)), 32, c.stream}, top_k,
                   a.in[0].floats(), a.out[0].out_ints(0), a.out[1].out_row(0), a.in[0].shape.cols,
                   op.k);
  }
};

// Row-wise soft-max of scale * x. A warp takes a row; its two halves do the same work, so that the
// sum follows the CPU's tree of 16.

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

// Multiplies each value by the scale of its expert.

__global__ void scale_chosen(const float* x, const int32_t* experts, const float* scales, float* y,
                             int64_t n) {
  wait_for_previous();
  start_next();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * scales[experts[i]];
}

struct ScaleChosenKernel {
  static void launch(const ScaleChosen&, const OpArgs& a, const LaunchContext& c) {
    const int64_t n = a.in[0].shape.rows * a.in[0].shape.cols;
    chaski::launch("scale_chosen", {dim3(unsigned((n + 255) / 256)), 256, c.stream}, scale_chosen,
                   a.in[0].floats(), a.in[1].ints(0), a.in[2].floats(), a.out[0].out_row(0), n);
  }
};

// The weights of the sparse mixer; a warp takes a row. Its two halves do the same work, so that the
// sum follows the CPU's tree of 16.

__global__ void sparse_mixer(const float* x, const int32_t* chosen, float* y, int64_t experts,
                             int64_t k, float limit) {
  wait_for_previous();
  start_next();
  x += blockIdx.x * experts, chosen += blockIdx.x * k, y += blockIdx.x * k;
  for (int64_t j = 0; j < k; ++j) {
    const float most = x[chosen[j]];
    float sum = 0;
    for (int64_t i = threadIdx.x % 16; i < experts; i += 16) {
      const bool counts =
          !SparseMixer::is_before(chosen, j, i) && !SparseMixer::is_far(most, x[i], limit);
      sum += counts ? exp_fixed(x[i] - most) : 0.0f;
    }
    sum = tree_sum(sum);
    if (threadIdx.x == 0) y[j] = 1.0f / sum;
  }
}

struct SparseMixerKernel {
  static void launch(const SparseMixer& op, const OpArgs& a, const LaunchContext& c) {
    chaski::launch("sparse_mixer", {dim3(unsigned(a.in[0].shape.rows)), 32, c.stream}, sparse_mixer,
                   a.in[0].floats(), a.in[1].ints(0), a.out[0].out_row(0), a.in[0].shape.cols,
                   a.in[1].shape.cols, op.limit);
  }
};

// A short convolution over the tokens of each sequence; a thread computes a channel of a token. The
// first taps - 1 tokens of a sequence read its state. The thread of the very first token computes
// all of these and then stores the last inputs in the state.

struct ShortConvArgs {
  const float *x, *w, *bias;  // bias: or null
  float* y;
  std::byte* states;  // address of page 0
  int64_t page_bytes;
  const int32_t *cells, *tables, *table_start;
  int tokens, back, cols;  // back: taps - 1
  bool silu;

  __device__ __forceinline__ bool together(int t, int other) const {
    return table_start[t] == table_start[other];
  }
  // Computes token t. At least min(back, before) tokens of its sequence precede it in the batch.
  __device__ __forceinline__ void one(int t, int before, int c, const float* kept) const {
    float sum = 0;
    for (int ago = min(back, cells[t]); ago >= 0; --ago) {
      const float input = ago <= before ? x[int64_t(t - ago) * cols + c]
                                        : kept[int64_t((cells[t] - ago) % back) * cols + c];
      sum = fmaf(w[int64_t(back - ago) * cols + c], input, sum);
    }
    if (bias) sum = sum + bias[c];
    y[int64_t(t) * cols + c] = silu ? activate_fixed(Activation::silu, sum) : sum;
  }
};

__global__ void short_conv(ShortConvArgs a) {
  wait_for_previous();
  start_next();
  const int t = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
  if (c >= a.cols) return;
  int before = 0;
  while (before < a.back && t > before && a.together(t - before - 1, t)) ++before;
  float* kept = reinterpret_cast<float*>(a.states + a.tables[a.table_start[t]] * a.page_bytes);
  if (before == a.back) return a.one(t, before, c, kept);
  if (before > 0) return;
  // Sequences have tables at increasing offsets, so the sequence ends where the offset first
  // changes.
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
    return a.where->states.recurrent[size_t(op.state)];
  }
  static bool supports(const ShortConv& op, const OpArgs& a) { return is_addressable(view(op, a)); }
  static void launch(const ShortConv& op, const OpArgs& a, const LaunchContext& c) {
    const RecurrentView& s = view(op, a);
    const ShortConvArgs args{a.in[0].floats(),
                             a.in[1].floats(),
                             op.biases(a),
                             a.out[0].out_row(0),
                             s.block(0),
                             int64_t(s.page_bytes),
                             c.batch.cells,
                             c.batch.tables,
                             c.batch.table_start[s.pool],
                             int(a.in[0].shape.rows),
                             op.taps - 1,
                             op.cols,
                             op.silu};
    chaski::launch("short_conv",
                   {dim3(unsigned(args.tokens), unsigned((op.cols + 127) / 128)), 128, c.stream},
                   short_conv, args);
  }
};

// Norms. A block takes a row, or a head of a row, and keeps it in shared memory between the passes.
// The sums are over many threads in a fixed tree that depends on the row's length alone. The CPU's
// tree of 16 would be a chain of n / 16 fma here.

__global__ void __launch_bounds__(32 * kMostSegments) norm(NormRow a) {
  __shared__ float part[32];
  prefetch_norm(a);
  wait_for_previous();
  start_next();
  norm_row(a, blockIdx.x, dynamic_shared<float>(), part);
}

struct NormKernel {
  static bool supports(const Norm& op, const OpArgs& a, size_t shared_limit) {
    return (size_t(a.in[0].shape.cols / op.heads) + 32) * sizeof(float) <= shared_limit;
  }
  static void launch(const Norm& op, const OpArgs& a, const LaunchContext& c) {
    const NormRow row = norm_row_of(op, a);
    chaski::launch("norm",
                   {dim3(unsigned(a.in[0].shape.rows * op.heads)), norm_threads(row.n), c.stream,
                    size_t(row.n) * sizeof(float)},
                   norm, row);
  }
};

}  // namespace

template <>
struct CudaKernel<Binary> : BinaryKernel {};
template CudaEntry cuda_entry<Binary>();
template <>
struct CudaKernel<Unary> : UnaryKernel {};
template CudaEntry cuda_entry<Unary>();
template <>
struct CudaKernel<Xielu> : XieluKernel {};
template CudaEntry cuda_entry<Xielu>();
template <>
struct CudaKernel<SoftMax> : SoftMaxKernel {};
template CudaEntry cuda_entry<SoftMax>();
template <>
struct CudaKernel<SparseMixer> : SparseMixerKernel {};
template CudaEntry cuda_entry<SparseMixer>();
template <>
struct CudaKernel<ScaleChosen> : ScaleChosenKernel {};
template CudaEntry cuda_entry<ScaleChosen>();
template <>
struct CudaKernel<Norm> : NormKernel {};
template CudaEntry cuda_entry<Norm>();
template <>
struct CudaKernel<Scale> : ScaleKernel {};
template CudaEntry cuda_entry<Scale>();
template <>
struct CudaKernel<Mix> : MixKernel {};
template CudaEntry cuda_entry<Mix>();
template <>
struct CudaKernel<TopK> : TopKKernel {};
template CudaEntry cuda_entry<TopK>();
template <>
struct CudaKernel<Columns> : ColumnsKernel {};
template CudaEntry cuda_entry<Columns>();
template <>
struct CudaKernel<Join> : JoinKernel {};
template CudaEntry cuda_entry<Join>();
template <>
struct CudaKernel<Blend> : BlendKernel {};
template CudaEntry cuda_entry<Blend>();
template <>
struct CudaKernel<MeanProduct> : MeanProductKernel {};
template CudaEntry cuda_entry<MeanProduct>();
template <>
struct CudaKernel<RoundRows> : RoundRowsKernel {};
template CudaEntry cuda_entry<RoundRows>();
template <>
struct CudaKernel<Reorder> : ReorderKernel {};
template CudaEntry cuda_entry<Reorder>();
template <>
struct CudaKernel<SetAside> : SetAsideKernel {};
template CudaEntry cuda_entry<SetAside>();
template <>
struct CudaKernel<ShortConv> : ShortConvKernel {};
template CudaEntry cuda_entry<ShortConv>();

}  // namespace chaski
