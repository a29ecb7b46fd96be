// The ops with a recurrent state. A unit is some channels of all tokens, and only this unit reads
// and writes these channels in the states.
#pragma once
#include "ggml-like-tensor/cpu/kernel.h"
#include "ggml-like-tensor/cpu/math.h"
#include "ggml-like-tensor/ops/delta_rule.h"
#include "ggml-like-tensor/ops/selective_scan.h"
#include "ggml-like-tensor/ops/short_conv.h"
#include "ggml-like-tensor/ops/state_scan.h"

namespace chaski {
namespace {

template <class V>
struct CpuKernel<ShortConv, V> {
  static constexpr int kChannels = 64;
  static int64_t units(const ShortConv& op, const OpArgs&) {
    return (op.cols + kChannels - 1) / kChannels;
  }
  static int64_t grain(const ShortConv&, const OpArgs&) { return 1; }
  static size_t scratch(const ShortConv&, const OpArgs&) { return 0; }

  static void run(const ShortConv& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    const Batch& b = *a.batch;
    const int64_t from = first * kChannels,
                  to = last * kChannels < op.cols ? last * kChannels : op.cols;
    each_sequence(b, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
      float* const kept = state_at(a, op.state, begin);
      for (int64_t t = begin; t < end; ++t) one_token(op, a, t, t - begin, kept, from, to);
      const int back = op.taps - 1;
      for (int64_t t = end - back > begin ? end - back : begin; t < end; ++t)
        __builtin_memcpy(kept + b.cells[t] % back * op.cols + from, a.in[0].row(t) + from,
                         (to - from) * sizeof(float));
    });
  }
  // Computes channels [from, to) of token t; `before` tokens of its sequence precede it in the
  // batch.
  static void one_token(const ShortConv& op, const OpArgs& a, int64_t t, int64_t before,
                        const float* kept, int64_t from, int64_t to) {
    const int cell = a.batch->cells[t], back = op.taps - 1;
    const float* bias = op.biases(a);
    each_vector(to - from, [&](int64_t i, int64_t n) {
      auto sum = V::zero();
      for (int ago = back < cell ? back : cell; ago >= 0; --ago) {
        const float* x =
            ago <= before ? a.in[0].row(t - ago) : kept + (cell - ago) % back * op.cols;
        const float* w = a.in[1].floats() + (back - ago) * op.cols;
        sum = V::fma(load_n<V>(w + from + i, n), load_n<V>(x + from + i, n), sum);
      }
      if (bias) sum = V::add(sum, load_n<V>(bias + from + i, n));
      if (op.silu) sum = activate<V>(Activation::silu, sum);
      store_n<V>(a.out[0].out_row(t) + from + i, sum, n);
    });
  }
};

// A unit is 16 channels.
template <class V>
struct CpuKernel<SelectiveScan, V> {
  static int64_t units(const SelectiveScan& op, const OpArgs&) {
    return state_row(op.cols) / kStateLanes;
  }
  static int64_t grain(const SelectiveScan&, const OpArgs&) { return 1; }
  static size_t scratch(const SelectiveScan& op, const OpArgs&) {
    return size_t(op.states) * kStateLanes * sizeof(float);
  }
  static void run(const SelectiveScan& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const Batch& b = *a.batch;
    auto* decays = reinterpret_cast<float*>(scratch.own);  // of the unit, state by state
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t from = unit * kStateLanes,
                    n = op.cols - from < kStateLanes ? op.cols - from : kStateLanes;
      for (int64_t s = 0; s < op.states; ++s)
        V::store(decays + s * kStateLanes, load_n<V>(a.in[4].floats() + s * op.cols + from, n));
      const auto direct = load_n<V>(a.in[5].floats() + from, n);
      each_sequence(b, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
        float* const kept = state_at(a, op.state, begin) + from * op.states;
        if (b.cells[begin] == 0)
          __builtin_memset(kept, 0, size_t(op.states) * kStateLanes * sizeof(float));
        for (int64_t t = begin; t < end; ++t) {
          const auto x = load_n<V>(a.in[0].row(t) + from, n),
                     dt = load_n<V>(a.in[1].row(t) + from, n), step = V::mul(dt, x);
          const float *in = a.in[2].row(t), *out = a.in[3].row(t);
          auto y = V::zero();
          for (int64_t s = 0; s < op.states; ++s) {
            float* const at = kept + s * kStateLanes;
            const auto decay = exp<V>(V::mul(dt, V::load(decays + s * kStateLanes)));
            const auto next = V::fma(decay, V::load(at), V::mul(step, V::set1(in[s])));
            V::store(at, next);
            y = V::fma(V::set1(out[s]), next, y);
          }
          store_n<V>(a.out[0].out_row(t) + from, V::fma(direct, x, y), n);
        }
      });
    }
  }
};

// e^x of one number, with the bits of exp().
template <class V>
float exp_of(float x) {
  float all[16];
  V::store(all, exp<V>(V::set1(x)));
  return all[0];
}

// Units of two vectors of columns of a head; a narrow rest of a head has one.
template <class V>
struct HeadColumns {
  static constexpr int64_t kWide = 2 * kStateLanes;
  static int64_t blocks(int64_t cols) { return (cols + kWide - 1) / kWide; }

  // Calls run(head, first column, number of columns, number of vectors as a constant).
  template <class Run>
  static void each(int64_t cols, int64_t first, int64_t last, Run run) {
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t from = unit % blocks(cols) * kWide,
                    n = cols - from < kWide ? cols - from : kWide, head = unit / blocks(cols);
      if (n > kStateLanes)
        run(head, from, n, std::integral_constant<int, 2>());
      else
        run(head, from, n, std::integral_constant<int, 1>());
    }
  }
  // The part of n columns that is in vector i.
  static int64_t part(int64_t n, int i) {
    return n - i * kStateLanes < kStateLanes ? n - i * kStateLanes : kStateLanes;
  }
};

template <class V>
struct CpuKernel<StateScan, V> {
  using Columns = HeadColumns<V>;
  static int64_t units(const StateScan& op, const OpArgs&) {
    return op.heads * Columns::blocks(op.head_dim);
  }
  static int64_t grain(const StateScan&, const OpArgs&) { return 1; }
  static size_t scratch(const StateScan&, const OpArgs&) { return 0; }

  static void run(const StateScan& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    Columns::each(op.head_dim, first, last,
                  [&](int64_t head, int64_t from, int64_t n, auto vectors) {
                    each_sequence(*a.batch, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
                      tokens<vectors()>(op, a, head, from, n, begin, end);
                    });
                  });
  }
  template <int kVectors>
  static void tokens(const StateScan& op, const OpArgs& a, int64_t head, int64_t from, int64_t n,
                     int64_t begin, int64_t end) {
    const int64_t row = state_row(op.head_dim);
    float* const kept = state_at(a, op.state, begin) + head * op.states * row + from;
    if (a.batch->cells[begin] == 0)
      for (int64_t s = 0; s < op.states; ++s)
        for (int i = 0; i < kVectors; ++i) V::store(kept + s * row + i * kStateLanes, V::zero());
    const auto direct = V::set1(a.in[3].floats()[head]);
    for (int64_t t = begin; t < end; ++t) {
      const float *in = a.in[0].row(t), *b = in + op.b_at(head), *c = in + op.c_at(head);
      const float dt = a.in[1].row(t)[head];
      const auto decay = V::set1(exp_of<V>(dt * a.in[2].floats()[head]));
      const float* const at = in + head * op.head_dim + from;
      typename V::F step[kVectors], y[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        step[i] = V::mul(V::set1(dt), load_n<V>(at + i * kStateLanes, Columns::part(n, i)));
        y[i] = V::zero();
      }
      for (int64_t s = 0; s < op.states; ++s) {
        const auto add = V::set1(b[s]), read = V::set1(c[s]);
        for (int i = 0; i < kVectors; ++i) {
          float* const cells = kept + s * row + i * kStateLanes;
          const auto next = V::fma(decay, V::load(cells), V::mul(step[i], add));
          V::store(cells, next);
          y[i] = V::fma(read, next, y[i]);
        }
      }
      for (int i = 0; i < kVectors; ++i) {
        const int64_t part = Columns::part(n, i);
        const auto x = load_n<V>(at + i * kStateLanes, part);
        store_n<V>(a.out[0].out_row(t) + head * op.head_dim + from + i * kStateLanes,
                   V::fma(direct, x, y[i]), part);
      }
    }
  }
};

template <class V>
struct CpuKernel<DeltaRule, V> {
  using Columns = HeadColumns<V>;
  static int64_t units(const DeltaRule& op, const OpArgs&) {
    return op.heads * Columns::blocks(op.v_dim);
  }
  static int64_t grain(const DeltaRule&, const OpArgs&) { return 1; }
  static size_t scratch(const DeltaRule&, const OpArgs&) { return 0; }

  static void run(const DeltaRule& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    Columns::each(op.v_dim, first, last, [&](int64_t head, int64_t from, int64_t n, auto vectors) {
      each_sequence(*a.batch, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
        tokens<vectors()>(op, a, head, from, n, begin, end);
      });
    });
  }
  static float inverse_length(const float* x, int64_t n, float eps) {
    auto sum = V::zero();
    each_vector(n, [&](int64_t i, int64_t k) {
      const auto part = load_n<V>(x + i, k);
      sum = V::fma(part, part, sum);
    });
    return 1 / __builtin_sqrtf(V::sum(sum) + eps);
  }
  template <int kVectors>
  static void tokens(const DeltaRule& op, const OpArgs& a, int64_t head, int64_t from, int64_t n,
                     int64_t begin, int64_t end) {
    const int64_t row = state_row(op.v_dim);
    float* const kept = state_at(a, op.state, begin) + head * op.k_dim * row + from;
    if (a.batch->cells[begin] == 0)
      for (int64_t d = 0; d < op.k_dim; ++d)
        for (int i = 0; i < kVectors; ++i) V::store(kept + d * row + i * kStateLanes, V::zero());
    const float scale = 1 / __builtin_sqrtf(float(op.k_dim));
    for (int64_t t = begin; t < end; ++t) {
      const float *q = a.in[0].row(t) + op.key_at(head), *k = a.in[1].row(t) + op.key_at(head),
                  *v = a.in[2].row(t) + head * op.v_dim + from;
      const float of_k = inverse_length(k, op.k_dim, op.eps),
                  of_q = inverse_length(q, op.k_dim, op.eps) * scale,
                  decay = exp_of<V>(a.in[3].row(t)[head] * a.in[5].floats()[head]);
      typename V::F known[kVectors], step[kVectors], y[kVectors];
      for (int i = 0; i < kVectors; ++i) known[i] = y[i] = V::zero();
      for (int64_t d = 0; d < op.k_dim; ++d)
        for (int i = 0; i < kVectors; ++i)
          known[i] = V::fma(V::set1(k[d]), V::load(kept + d * row + i * kStateLanes), known[i]);
      for (int i = 0; i < kVectors; ++i) {
        const auto value = load_n<V>(v + i * kStateLanes, Columns::part(n, i));
        step[i] = V::mul(V::sub(value, V::mul(known[i], V::set1(decay * of_k))),
                         V::set1(a.in[4].row(t)[head] * of_k));
      }
      const auto all = V::set1(decay);
      for (int64_t d = 0; d < op.k_dim; ++d) {
        const auto add = V::set1(k[d]), read = V::set1(q[d]);
        for (int i = 0; i < kVectors; ++i) {
          float* const cells = kept + d * row + i * kStateLanes;
          const auto next = V::fma(all, V::load(cells), V::mul(add, step[i]));
          V::store(cells, next);
          y[i] = V::fma(read, next, y[i]);
        }
      }
      for (int i = 0; i < kVectors; ++i)
        store_n<V>(a.out[0].out_row(t) + head * op.v_dim + from + i * kStateLanes,
                   V::mul(y[i], V::set1(of_q)), Columns::part(n, i));
    }
  }
};

}  // namespace
}  // namespace chaski
