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

// A unit is 256 channels: as 1 KB of each row, what a token reads and writes is in few pages.
template <class V>
struct CpuKernel<ShortConv, V> {
  static constexpr int kChannels = 256;
  static int64_t units(const ShortConv& op, const OpArgs&) {
    return (op.cols + kChannels - 1) / kChannels;
  }
  static int64_t grain(const ShortConv&, const OpArgs&) { return 1; }
  static size_t scratch(const ShortConv&, const OpArgs&) { return 0; }

  static void run(const ShortConv& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    const Batch& b = *a.batch;
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t from = unit * kChannels,
                    n = op.cols - from < kChannels ? op.cols - from : kChannels;
      each_sequence(b, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
        float* const kept = state_at(a, op.state, begin);
        for (int64_t t = begin; t < end; ++t) {
          const int64_t before = t - begin;
          if (op.taps == 4 && b.cells[t] >= 3)
            one_token<4>(op, a, t, before, kept, from, n);
          else if (op.taps == 3 && b.cells[t] >= 2)
            one_token<3>(op, a, t, before, kept, from, n);
          else
            one_token<0>(op, a, t, before, kept, from, n);
        }
        const int back = op.taps - 1;
        for (int64_t t = end - back > begin ? end - back : begin; t < end; ++t)
          __builtin_memcpy(kept + b.cells[t] % back * op.cols + from, a.in[0].row(t) + from,
                           size_t(n) * sizeof(float));
      });
    }
  }
  // Computes n channels of token t; `before` tokens of its sequence precede it in the batch. kTaps:
  // the number of its inputs if it has all of them, otherwise 0.
  template <int kTaps>
  static void one_token(const ShortConv& op, const OpArgs& a, int64_t t, int64_t before,
                        const float* kept, int64_t from, int64_t n) {
    const int cell = a.batch->cells[t], back = op.taps - 1;
    const auto input = [&](int ago) {
      return (ago <= before ? a.in[0].row(t - ago) : kept + (cell - ago) % back * op.cols) + from;
    };
    const auto weight = [&](int ago) { return a.in[1].floats() + (back - ago) * op.cols + from; };
    const float* bias = op.biases(a);
    float* const out = a.out[0].out_row(t) + from;
    const float *x[kTaps > 0 ? kTaps : 1], *w[kTaps > 0 ? kTaps : 1];
    for (int ago = 0; ago < kTaps; ++ago) x[ago] = input(ago), w[ago] = weight(ago);
    const auto finish = [&](int64_t i, int64_t part, typename V::F sum) {
      if (bias) sum = V::add(sum, load_n<V>(bias + from + i, part));
      if (op.silu) sum = silu<V>(sum);
      store_n<V>(out + i, sum, part);
    };
    int64_t i = 0;
    if constexpr (kTaps > 0)
      for (; i + kStateLanes <= n; i += kStateLanes) {
        auto sum = V::zero();
        for (int ago = kTaps - 1; ago >= 0; --ago)
          sum = V::fma(V::load(w[ago] + i), V::load(x[ago] + i), sum);
        finish(i, kStateLanes, sum);
      }
    for (; i < n; i += kStateLanes) {
      const int64_t part = n - i < kStateLanes ? n - i : kStateLanes;
      auto sum = V::zero();
      for (int ago = back < cell ? back : cell; ago >= 0; --ago)
        sum = V::fma(load_n<V>(weight(ago) + i, part), load_n<V>(input(ago) + i, part), sum);
      finish(i, part, sum);
    }
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
  static constexpr int64_t kWide = HeadState::kWide;
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
  // One token over the state. The sums are copied to y at the end, because y is in memory.
  template <int kVectors>
  static void write(int64_t states, float* cells, typename V::F decay, const float* b,
                    const float* c, const typename V::F* step, typename V::F* y) {
    typename V::F x[kVectors], sums[kVectors];
    for (int i = 0; i < kVectors; ++i) x[i] = step[i], sums[i] = V::zero();
    for (int64_t s = 0; s < states; ++s, cells += kVectors * kStateLanes) {
      const auto add = V::set1(b[s]), read = V::set1(c[s]);
      for (int i = 0; i < kVectors; ++i) {
        const auto next = V::fma(decay, V::load(cells + i * kStateLanes), V::mul(x[i], add));
        V::store(cells + i * kStateLanes, next);
        sums[i] = V::fma(read, next, sums[i]);
      }
    }
    for (int i = 0; i < kVectors; ++i) y[i] = sums[i];
  }
  template <int kVectors>
  static void tokens(const StateScan& op, const OpArgs& a, int64_t head, int64_t from, int64_t n,
                     int64_t begin, int64_t end) {
    constexpr int64_t row = kVectors * kStateLanes;
    const HeadState of = op.of_head();
    float* const kept = state_at(a, op.state, begin) + head * of.size() + of.at(from);
    if (a.batch->cells[begin] == 0)
      __builtin_memset(kept, 0, size_t(op.states) * row * sizeof(float));
    const auto direct = V::set1(op.direct(a, head));
    for (int64_t t = begin; t < end; ++t) {
      const float *in = a.in[0].row(t), *b = in + op.b_at(head), *c = in + op.c_at(head);
      const float dt = op.dt(a, t, head);
      const auto decay = V::set1(exp_of<V>(dt * op.decays(a)[head]));
      const float* const at = in + op.x_at(head) + from;
      typename V::F step[kVectors], y[kVectors];
      for (int i = 0; i < kVectors; ++i)
        step[i] = V::mul(V::set1(dt), load_n<V>(at + i * kStateLanes, Columns::part(n, i)));
      write<kVectors>(op.states, kept, decay, b, c, step, y);
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
    return op.by_channel ? 2 * size_t(op.k_dim) * sizeof(float) : 0;
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
  // What a token does to the state of a head.
  struct Token {
    const float *k, *q;
    const float* decays;  // of each row, if `by_channel`
    float decay;          // of all rows otherwise
    float of_k, of_q;     // what k and q are multiplied by
    float beta;
  };
  static Token token_of(const DeltaRule& op, const OpArgs& a, int64_t t, int64_t head,
                        float* decays) {
    const float *q = a.in[0].row(t) + op.key_at(head), *k = a.in[1].row(t) + op.key_at(head);
    const float rate = a.in[5].floats()[head];
    Token token{k,
                q,
                decays,
                1,
                inverse_length(k, op.k_dim, op.eps),
                inverse_length(q, op.k_dim, op.eps) * (1 / __builtin_sqrtf(float(op.k_dim))),
                a.in[4].row(t)[head]};
    if (!op.by_channel) {
      token.decay = exp_of<V>(a.in[3].row(t)[head] * rate);
      return token;
    }
    const float* dt = a.in[3].row(t) + head * op.k_dim;
    each_vector(op.k_dim, [&](int64_t i, int64_t n) {
      store_n<V>(decays + i, exp<V>(V::mul(load_n<V>(dt + i, n), V::set1(rate))), n);
    });
    return token;
  }
  template <bool kByChannel>
  static typename V::F weight_of(const Token& token, int64_t d) {
    return V::set1(kByChannel ? token.k[d] * token.decays[d] : token.k[d]);
  }
  // Writes what token `now` leaves of the state; y is what its query reads. If there is a `next`
  // token, `known` is what the new state has for its key: the row is in registers. The sums are
  // copied at the end, because y and `known` are in memory.
  template <int kVectors, bool kByChannel, bool kNext>
  static void write(int64_t rows, float* kept, const Token& now, const Token& next,
                    const typename V::F* step, typename V::F* y, typename V::F* known) {
    const auto all = V::set1(now.decay);
    typename V::F by[kVectors], sums[kVectors], found[kVectors];
    for (int i = 0; i < kVectors; ++i) by[i] = step[i], sums[i] = found[i] = V::zero();
    for (int64_t d = 0; d < rows; ++d) {
      const auto add = V::set1(now.k[d]), read = V::set1(now.q[d]),
                 left = kByChannel ? V::set1(now.decays[d]) : all;
      const auto with = kNext ? weight_of<kByChannel>(next, d) : add;
      for (int i = 0; i < kVectors; ++i) {
        float* const cells = kept + (d * kVectors + i) * kStateLanes;
        const auto made = V::fma(left, V::load(cells), V::mul(add, by[i]));
        V::store(cells, made);
        sums[i] = V::fma(read, made, sums[i]);
        if (kNext) found[i] = V::fma(with, made, found[i]);
      }
    }
    for (int i = 0; i < kVectors; ++i) y[i] = sums[i], known[i] = found[i];
  }
  template <int kVectors, bool kByChannel>
  static void find(int64_t rows, const float* kept, const Token& token, typename V::F* known) {
    typename V::F found[kVectors];
    for (int i = 0; i < kVectors; ++i) found[i] = V::zero();
    for (int64_t d = 0; d < rows; ++d) {
      const auto with = weight_of<kByChannel>(token, d);
      for (int i = 0; i < kVectors; ++i)
        found[i] = V::fma(with, V::load(kept + (d * kVectors + i) * kStateLanes), found[i]);
    }
    for (int i = 0; i < kVectors; ++i) known[i] = found[i];
  }
  // decays: space for those of two tokens, if each row has its own.
  template <int kVectors, bool kByChannel>
  static void tokens(const DeltaRule& op, const OpArgs& a, int64_t head, int64_t from, int64_t n,
                     int64_t begin, int64_t end, float* decays) {
    const HeadState of = op.of_head();
    float* const kept = state_at(a, op.state, begin) + head * of.size() + of.at(from);
    if (a.batch->cells[begin] == 0)
      __builtin_memset(kept, 0, size_t(op.k_dim) * kVectors * kStateLanes * sizeof(float));
    typename V::F known[kVectors], step[kVectors], y[kVectors];
    Token now = token_of(op, a, begin, head, decays);
    find<kVectors, kByChannel>(op.k_dim, kept, now, known);
    for (int64_t t = begin; t < end; ++t) {
      const float* v = a.in[2].row(t) + head * op.v_dim + from;
      for (int i = 0; i < kVectors; ++i) {
        const auto value = load_n<V>(v + i * kStateLanes, Columns::part(n, i));
        step[i] = V::mul(V::sub(value, V::mul(known[i], V::set1(now.decay * now.of_k))),
                         V::set1(now.beta * now.of_k));
      }
      Token next = now;
      if (t + 1 < end) {
        next = token_of(op, a, t + 1, head, decays + ((t + 1 - begin) % 2) * op.k_dim);
        write<kVectors, kByChannel, true>(op.k_dim, kept, now, next, step, y, known);
      } else {
        write<kVectors, kByChannel, false>(op.k_dim, kept, now, next, step, y, known);
      }
      for (int i = 0; i < kVectors; ++i)
        store_n<V>(a.out[0].out_row(t) + head * op.v_dim + from + i * kStateLanes,
                   V::mul(y[i], V::set1(now.of_q)), Columns::part(n, i));
      now = next;
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
    constexpr int64_t row = kVectors * kStateLanes;
    const int64_t at = head * op.head_dim;
    const HeadState of = op.of_head();
    float *const kept = state_at(a, op.state, begin) + head * of.size() + of.at(from),
                 *const decays = rows, *const reads = rows + op.head_dim,
                 *const writes = reads + op.head_dim;
    if (a.batch->cells[begin] == 0)
      __builtin_memset(kept, 0, size_t(op.head_dim) * row * sizeof(float));
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
