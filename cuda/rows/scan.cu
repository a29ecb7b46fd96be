// The scans over a recurrent state. A thread computes a channel, or a column of a head, for all
// tokens of a sequence, one after another. It adds to its state and to y in the CPU's order, but
// sums over a row (inverse_length, bonus) one by one, where the CPU has 16 partial sums. Its state
// is in device memory.
#include "cuda/device/math.cuh"
#include "cuda/entry.h"

namespace chaski {
namespace {

// Where the tokens of a batch have their states.
struct Sequences {
  std::byte* states;  // address of page 0
  int64_t page_bytes;
  const int32_t *cells, *tables, *table_start;
  int tokens;

  __device__ __forceinline__ bool begins(int t) const {
    return t == 0 || table_start[t] != table_start[t - 1];
  }
  // Whether token t belongs to the sequence that begins at `first`.
  __device__ __forceinline__ bool has(int first, int t) const {
    return t < tokens && table_start[t] == table_start[first];
  }
  __device__ __forceinline__ float* state(int t) const {
    return reinterpret_cast<float*>(states + tables[table_start[t]] * page_bytes);
  }
};

template <class Op>
const RecurrentView& view_of(const Op& op, const OpArgs& a) {
  return a.where->states.recurrent[size_t(op.state)];
}
template <class Op>
Sequences sequences_of(const Op& op, const OpArgs& a, const LaunchContext& c) {
  const RecurrentView& s = view_of(op, a);
  return {s.block(0),     int64_t(s.page_bytes),       c.batch.cells,
          c.batch.tables, c.batch.table_start[s.pool], int(a.in[0].shape.rows)};
}
// A thread for each column of each token; those of tokens that begin no sequence end at once.
template <class Op, class Kernel, class Args>
void launch_columns(const Op& op, int64_t columns, const LaunchContext& c, Kernel kernel,
                    const Args& args) {
  chaski::launch(Op::kName,
                 {dim3(unsigned(args.of.tokens), unsigned((columns + 127) / 128)), 128, c.stream},
                 kernel, op, args);
}

struct SelectiveScanArgs {
  Sequences of;
  const float *x, *dt, *b, *c, *decays, *direct;
  float* y;
};

__global__ void selective_scan(SelectiveScan op, SelectiveScanArgs a) {
  wait_for_previous();
  start_next();
  const int first = blockIdx.x, col = blockIdx.y * blockDim.x + threadIdx.x;
  if (col >= op.cols || !a.of.begins(first)) return;
  float* const kept =
      a.of.state(first) + col / kStateLanes * kStateLanes * int64_t(op.states) + col % kStateLanes;
  if (a.of.cells[first] == 0)
    for (int s = 0; s < op.states; ++s) kept[int64_t(s) * kStateLanes] = 0;
  for (int t = first; a.of.has(first, t); ++t) {
    const int64_t at = int64_t(t) * op.cols + col;
    const float dt = a.dt[at], x = a.x[at], step = dt * x;
    float y = 0;
    for (int s = 0; s < op.states; ++s) {
      float& cell = kept[int64_t(s) * kStateLanes];
      const float decay = exp_fixed(dt * a.decays[int64_t(s) * op.cols + col]);
      cell = fmaf(decay, cell, step * a.b[int64_t(t) * op.states + s]);
      y = fmaf(a.c[int64_t(t) * op.states + s], cell, y);
    }
    a.y[at] = fmaf(a.direct[col], x, y);
  }
}

struct SelectiveScanKernel {
  static bool supports(const SelectiveScan& op, const OpArgs& a) {
    return is_addressable(view_of(op, a));
  }
  static void launch(const SelectiveScan& op, const OpArgs& a, const LaunchContext& c) {
    launch_columns(op, op.cols, c, selective_scan,
                   SelectiveScanArgs{sequences_of(op, a, c), a.in[0].floats(), a.in[1].floats(),
                                     a.in[2].floats(), a.in[3].floats(), a.in[4].floats(),
                                     a.in[5].floats(), a.out[0].out_row(0)});
  }
};

// state_row() on the device.
__device__ __forceinline__ int64_t row_of(int64_t cols) {
  return (cols + kStateLanes - 1) / kStateLanes * kStateLanes;
}

struct StateScanArgs {
  Sequences of;
  const float *in, *dt, *decays, *direct;  // dt and direct: null if the op is not timed
  float* y;
};

__global__ void state_scan(StateScan op, StateScanArgs a) {
  wait_for_previous();
  start_next();
  const int first = blockIdx.x, col = blockIdx.y * blockDim.x + threadIdx.x;
  const int64_t row = row_of(op.head_dim), columns = int64_t(op.heads) * op.head_dim,
                cols = columns + 2 * int64_t(op.groups) * op.states;
  if (col >= op.heads * row || !a.of.begins(first)) return;
  const int head = col / row, group = head / (op.heads / op.groups), place = col % row;
  const bool is_column = place < op.head_dim;
  const int64_t to = int64_t(head) * op.head_dim + place,
                c_at = int64_t(head) * (op.head_dim + 2 * int64_t(op.states)),
                b_at = op.timed ? columns + int64_t(group) * op.states : c_at + op.states,
                x_at = op.timed ? to : b_at + op.states + place;
  const HeadState of{op.states, op.head_dim};
  float* const kept = a.of.state(first) + head * of.size() + of.at(place);
  const int64_t stride = of.stride(place);
  if (a.of.cells[first] == 0)
    for (int s = 0; s < op.states; ++s) kept[s * stride] = 0;
  for (int t = first; a.of.has(first, t); ++t) {
    const float *in = a.in + t * cols, *b = in + b_at,
                *c = op.timed ? b + int64_t(op.groups) * op.states : in + c_at;
    const float dt = a.dt ? a.dt[int64_t(t) * op.heads + head] : 1.0f,
                x = is_column ? in[x_at] : 0.0f, step = dt * x,
                decay = exp_fixed(dt * a.decays[head]);
    float y = 0;
    for (int s = 0; s < op.states; ++s) {
      kept[s * stride] = fmaf(decay, kept[s * stride], step * b[s]);
      y = fmaf(c[s], kept[s * stride], y);
    }
    if (is_column) a.y[t * columns + to] = fmaf(a.direct ? a.direct[head] : 0.0f, x, y);
  }
}

struct StateScanKernel {
  static bool supports(const StateScan& op, const OpArgs& a) {
    return is_addressable(view_of(op, a));
  }
  static void launch(const StateScan& op, const OpArgs& a, const LaunchContext& c) {
    launch_columns(op, op.heads * state_row(op.head_dim), c, state_scan,
                   StateScanArgs{sequences_of(op, a, c), a.in[0].floats(),
                                 op.timed ? a.in[1].floats() : nullptr, op.decays(a),
                                 op.timed ? a.in[3].floats() : nullptr, a.out[0].out_row(0)});
  }
};

struct DeltaRuleArgs {
  Sequences of;
  const float *q, *k, *v, *dt, *beta, *decays;
  float* y;
};

__device__ __forceinline__ float inverse_length(const float* x, int n, float eps) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = fmaf(x[i], x[i], sum);
  return 1.0f / sqrtf(sum + eps);
}

__global__ void delta_rule(DeltaRule op, DeltaRuleArgs a) {
  wait_for_previous();
  start_next();
  const int first = blockIdx.x, col = blockIdx.y * blockDim.x + threadIdx.x;
  const int64_t row = row_of(op.v_dim), keys = int64_t(op.k_heads) * op.k_dim,
                columns = int64_t(op.heads) * op.v_dim;
  if (col >= op.heads * row || !a.of.begins(first)) return;
  const int head = col / row, place = col % row,
            k_head = op.tiled ? head % op.k_heads : head / (op.heads / op.k_heads);
  const bool is_column = place < op.v_dim;
  const int64_t v_at = int64_t(head) * op.v_dim + place;
  const HeadState of{op.k_dim, op.v_dim};
  float* const kept = a.of.state(first) + head * of.size() + of.at(place);
  const int64_t stride = of.stride(place);
  if (a.of.cells[first] == 0)
    for (int d = 0; d < op.k_dim; ++d) kept[d * stride] = 0;
  const float scale = 1.0f / sqrtf(float(op.k_dim));
  for (int t = first; a.of.has(first, t); ++t) {
    const float *q = a.q + t * keys + int64_t(k_head) * op.k_dim,
                *k = a.k + t * keys + int64_t(k_head) * op.k_dim;
    const int64_t at = int64_t(t) * op.heads + head;
    const float of_k = inverse_length(k, op.k_dim, op.eps),
                of_q = inverse_length(q, op.k_dim, op.eps) * scale,
                *dt = a.dt + at * (op.by_channel ? op.k_dim : 1);
    const float all = op.by_channel ? 1.0f : exp_fixed(*dt * a.decays[head]);
    float known = 0, y = 0;
    for (int d = 0; d < op.k_dim; ++d) {
      const float with = op.by_channel ? k[d] * exp_fixed(dt[d] * a.decays[head]) : k[d];
      known = fmaf(with, kept[d * stride], known);
    }
    const float value = is_column ? a.v[t * columns + v_at] : 0.0f,
                step = (value - known * (all * of_k)) * (a.beta[at] * of_k);
    for (int d = 0; d < op.k_dim; ++d) {
      const float decay = op.by_channel ? exp_fixed(dt[d] * a.decays[head]) : all;
      kept[d * stride] = fmaf(decay, kept[d * stride], k[d] * step);
      y = fmaf(q[d], kept[d * stride], y);
    }
    if (is_column) a.y[t * columns + v_at] = y * of_q;
  }
}

struct DeltaRuleKernel {
  static bool supports(const DeltaRule& op, const OpArgs& a) {
    return is_addressable(view_of(op, a));
  }
  static void launch(const DeltaRule& op, const OpArgs& a, const LaunchContext& c) {
    launch_columns(
        op, op.heads * state_row(op.v_dim), c, delta_rule,
        DeltaRuleArgs{sequences_of(op, a, c), a.in[0].floats(), a.in[1].floats(), a.in[2].floats(),
                      a.in[3].floats(), a.in[4].floats(), a.in[5].floats(), a.out[0].out_row(0)});
  }
};

struct WkvArgs {
  Sequences of;
  const float *r, *k, *v, *w, *u, *kk, *a;  // kk and a: null if the op does not remove
  float *y, *bonus;
};

__global__ void wkv(Wkv op, WkvArgs a) {
  wait_for_previous();
  start_next();
  const int first = blockIdx.x, col = blockIdx.y * blockDim.x + threadIdx.x;
  const int64_t row = row_of(op.head_dim), columns = int64_t(op.heads) * op.head_dim;
  if (col >= op.heads * row || !a.of.begins(first)) return;
  const int head = col / row, place = col % row, n = op.head_dim;
  const bool is_column = place < n;
  const HeadState of{n, n};
  float* const kept = a.of.state(first) + head * of.size() + of.at(place);
  const int64_t stride = of.stride(place);
  if (a.of.cells[first] == 0)
    for (int d = 0; d < n; ++d) kept[d * stride] = 0;
  const float* u = a.u + int64_t(head) * n;
  for (int t = first; a.of.has(first, t); ++t) {
    const int64_t at = t * columns + int64_t(head) * n;
    const float *r = a.r + at, *k = a.k + at, *w = a.w + at;
    const float of_kk = op.removes ? inverse_length(a.kk + at, n, Wkv::kEps) : 0.0f,
                v = is_column ? a.v[at + place] : 0.0f;
    float removed = 0, y = 0, bonus = 0;
    for (int d = 0; op.removes && d < n; ++d) {
      removed = fmaf(0.0f - a.kk[at + d] * of_kk, kept[d * stride], removed);
      bonus = fmaf(r[d], u[d] * k[d], bonus);
    }
    for (int d = 0; d < n; ++d) {
      const float last = kept[d * stride],
                  pace = op.removes ? Wkv::kMostDecay * activate_fixed(Activation::sigmoid, w[d])
                                    : exp_fixed(w[d]);
      float added = k[d] * v;
      if (op.removes) added = fmaf(a.kk[at + d] * of_kk * a.a[at + d], removed, added);
      kept[d * stride] = fmaf(exp_fixed(0.0f - pace), last, added);
      y = fmaf(r[d], op.removes ? kept[d * stride] : fmaf(u[d] * k[d], v, last), y);
    }
    if (!is_column) continue;
    a.y[at + place] = y;
    if (op.removes) a.bonus[at + place] = bonus * v;
  }
}

struct WkvKernel {
  static bool supports(const Wkv& op, const OpArgs& a) { return is_addressable(view_of(op, a)); }
  static void launch(const Wkv& op, const OpArgs& a, const LaunchContext& c) {
    const auto of_7 = [&](int i) { return op.removes ? a.in[i].floats() : nullptr; };
    launch_columns(op, op.heads * state_row(op.head_dim), c, wkv,
                   WkvArgs{sequences_of(op, a, c), a.in[0].floats(), a.in[1].floats(),
                           a.in[2].floats(), a.in[3].floats(), a.in[4].floats(), of_7(5), of_7(6),
                           a.out[0].out_row(0), op.removes ? a.out[1].out_row(0) : nullptr});
  }
};

}  // namespace

template <>
struct CudaKernel<SelectiveScan> : SelectiveScanKernel {};
template CudaEntry cuda_entry<SelectiveScan>();
template <>
struct CudaKernel<StateScan> : StateScanKernel {};
template CudaEntry cuda_entry<StateScan>();
template <>
struct CudaKernel<DeltaRule> : DeltaRuleKernel {};
template CudaEntry cuda_entry<DeltaRule>();
template <>
struct CudaKernel<Wkv> : WkvKernel {};
template CudaEntry cuda_entry<Wkv>();

}  // namespace chaski
