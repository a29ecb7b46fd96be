// The ops with a recurrent state. A unit is some channels of all tokens, and only this unit reads
// and writes these channels in the states.
#pragma once
#include "ggml-like-tensor/cpu/kernel.h"
#include "ggml-like-tensor/cpu/math.h"
#include "ggml-like-tensor/ops/delta_rule.h"
#include "ggml-like-tensor/ops/selective_scan.h"
#include "ggml-like-tensor/ops/short_conv.h"
#include "ggml-like-tensor/ops/state_scan.h"
#include "ggml-like-tensor/ops/wkv.h"

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
    const auto direct = V::set1(op.direct(a, head));
    for (int64_t t = begin; t < end; ++t) {
      const float *in = a.in[0].row(t), *b = in + op.b_at(head), *c = in + op.c_at(head);
      const float dt = op.dt(a, t, head);
      const auto decay = V::set1(exp_of<V>(dt * op.decays(a)[head]));
      const float* const at = in + op.x_at(head) + from;
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
  static size_t scratch(const DeltaRule& op, const OpArgs&) {
    return op.by_channel ? size_t(op.k_dim) * sizeof(float) : 0;
  }

  static void run(const DeltaRule& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    auto* decays = reinterpret_cast<float*>(scratch.own);
    Columns::each(op.v_dim, first, last, [&](int64_t head, int64_t from, int64_t n, auto vectors) {
      each_sequence(*a.batch, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
        if (op.by_channel)
          tokens<vectors(), true>(op, a, head, from, n, begin, end, decays);
        else
          tokens<vectors(), false>(op, a, head, from, n, begin, end, decays);
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
  // decays: space for those of a token, if each row has its own.
  template <int kVectors, bool kByChannel>
  static void tokens(const DeltaRule& op, const OpArgs& a, int64_t head, int64_t from, int64_t n,
                     int64_t begin, int64_t end, float* decays) {
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
                  of_q = inverse_length(q, op.k_dim, op.eps) * scale;
      const float rate = a.in[5].floats()[head];
      float decay = 1;
      if (kByChannel) {
        const float* dt = a.in[3].row(t) + head * op.k_dim;
        each_vector(op.k_dim, [&](int64_t i, int64_t k_n) {
          store_n<V>(decays + i, exp<V>(V::mul(load_n<V>(dt + i, k_n), V::set1(rate))), k_n);
        });
      } else {
        decay = exp_of<V>(a.in[3].row(t)[head] * rate);
      }
      typename V::F known[kVectors], step[kVectors], y[kVectors];
      for (int i = 0; i < kVectors; ++i) known[i] = y[i] = V::zero();
      for (int64_t d = 0; d < op.k_dim; ++d) {
        const auto with = V::set1(kByChannel ? k[d] * decays[d] : k[d]);
        for (int i = 0; i < kVectors; ++i)
          known[i] = V::fma(with, V::load(kept + d * row + i * kStateLanes), known[i]);
      }
      for (int i = 0; i < kVectors; ++i) {
        const auto value = load_n<V>(v + i * kStateLanes, Columns::part(n, i));
        step[i] = V::mul(V::sub(value, V::mul(known[i], V::set1(decay * of_k))),
                         V::set1(a.in[4].row(t)[head] * of_k));
      }
      for (int64_t d = 0; d < op.k_dim; ++d) {
        const auto add = V::set1(k[d]), read = V::set1(q[d]),
                   left = V::set1(kByChannel ? decays[d] : decay);
        for (int i = 0; i < kVectors; ++i) {
          float* const cells = kept + d * row + i * kStateLanes;
          const auto next = V::fma(left, V::load(cells), V::mul(add, step[i]));
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

template <class V>
struct CpuKernel<Wkv, V> {
  using Columns = HeadColumns<V>;
  static int64_t units(const Wkv& op, const OpArgs&) {
    return op.heads * Columns::blocks(op.head_dim);
  }
  static int64_t grain(const Wkv&, const OpArgs&) { return 1; }
  static size_t scratch(const Wkv& op, const OpArgs&) {
    return 3 * size_t(op.head_dim) * sizeof(float);
  }
  static void run(const Wkv& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    auto* rows = reinterpret_cast<float*>(scratch.own);
    Columns::each(op.head_dim, first, last,
                  [&](int64_t head, int64_t from, int64_t n, auto vectors) {
                    each_sequence(*a.batch, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
                      if (op.removes)
                        tokens<vectors(), true>(op, a, head, from, n, begin, end, rows);
                      else
                        tokens<vectors(), false>(op, a, head, from, n, begin, end, rows);
                    });
                  });
  }
  // Fills for each row of a head's state: its decay, then what reads the part to be removed and
  // what writes it, or the bonus times the key. Returns the sum of r u k.
  static float numbers(const Wkv& op, const OpArgs& a, int64_t t, int64_t at, float* decays,
                       float* reads, float* writes) {
    const float *r = a.in[0].row(t) + at, *k = a.in[1].row(t) + at, *w = a.in[3].row(t) + at,
                *u = a.in[4].floats() + at;
    auto square = V::zero(), sum = V::zero();
    each_vector(op.head_dim, [&](int64_t i, int64_t n) {
      const auto of_u = V::mul(load_n<V>(u + i, n), load_n<V>(k + i, n));
      sum = V::fma(load_n<V>(r + i, n), of_u, sum);
      const auto x = load_n<V>(w + i, n);
      const auto pace = op.removes
                            ? V::mul(V::set1(Wkv::kMostDecay), activate<V>(Activation::sigmoid, x))
                            : exp<V>(x);
      store_n<V>(decays + i, exp<V>(V::sub(V::zero(), pace)), n);
      if (!op.removes) return store_n<V>(writes + i, of_u, n);
      const auto key = load_n<V>(a.in[5].row(t) + at + i, n);
      square = V::fma(key, key, square);
    });
    if (!op.removes) return 0;
    const auto of_key = V::set1(1 / __builtin_sqrtf(V::sum(square) + Wkv::kEps));
    each_vector(op.head_dim, [&](int64_t i, int64_t n) {
      const auto key = V::mul(load_n<V>(a.in[5].row(t) + at + i, n), of_key);
      store_n<V>(reads + i, key, n);
      store_n<V>(writes + i, V::mul(key, load_n<V>(a.in[6].row(t) + at + i, n)), n);
    });
    return V::sum(sum);
  }
  // rows: space for three numbers of each row of a head's state.
  template <int kVectors, bool kRemoves>
  static void tokens(const Wkv& op, const OpArgs& a, int64_t head, int64_t from, int64_t n,
                     int64_t begin, int64_t end, float* rows) {
    const int64_t row = state_row(op.head_dim), at = head * op.head_dim;
    float *const kept = state_at(a, op.state, begin) + at * row + from, *const decays = rows,
                 *const reads = rows + op.head_dim, *const writes = reads + op.head_dim;
    if (a.batch->cells[begin] == 0)
      for (int64_t d = 0; d < op.head_dim; ++d)
        for (int i = 0; i < kVectors; ++i) V::store(kept + d * row + i * kStateLanes, V::zero());
    for (int64_t t = begin; t < end; ++t) {
      const float *r = a.in[0].row(t) + at, *k = a.in[1].row(t) + at;
      const auto bonus = V::set1(numbers(op, a, t, at, decays, reads, writes));
      typename V::F v[kVectors], removed[kVectors], y[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        v[i] = load_n<V>(a.in[2].row(t) + at + from + i * kStateLanes, Columns::part(n, i));
        removed[i] = y[i] = V::zero();
      }
      for (int64_t d = 0; kRemoves && d < op.head_dim; ++d)
        for (int i = 0; i < kVectors; ++i)
          removed[i] =
              V::fma(V::set1(-reads[d]), V::load(kept + d * row + i * kStateLanes), removed[i]);
      for (int64_t d = 0; d < op.head_dim; ++d) {
        const auto left = V::set1(decays[d]), key = V::set1(k[d]), read = V::set1(r[d]),
                   write = V::set1(writes[d]);
        for (int i = 0; i < kVectors; ++i) {
          float* const cells = kept + d * row + i * kStateLanes;
          const auto last = V::load(cells);
          auto added = V::mul(key, v[i]);
          if (kRemoves) added = V::fma(write, removed[i], added);
          const auto next = V::fma(left, last, added);
          V::store(cells, next);
          y[i] = V::fma(read, kRemoves ? next : V::fma(write, v[i], last), y[i]);
        }
      }
      for (int i = 0; i < kVectors; ++i) {
        const int64_t to = at + from + i * kStateLanes, part = Columns::part(n, i);
        store_n<V>(a.out[0].out_row(t) + to, y[i], part);
        if (kRemoves) store_n<V>(a.out[1].out_row(t) + to, V::mul(bonus, v[i]), part);
      }
    }
  }
};

}  // namespace
}  // namespace chaski
