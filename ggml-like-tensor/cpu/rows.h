// The ops that are one row after another and little arithmetic.
#pragma once
#include "ggml-like-tensor/cpu/math.h"
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/get_rows.h"
#include "ggml-like-tensor/ops/kv_write.h"
#include "ggml-like-tensor/ops/short_conv.h"
#include "ggml-like-tensor/ops/soft_max.h"
#include "ggml-like-tensor/ops/take_rows.h"

namespace chaski {
namespace {

// A unit is a row of the output.
struct ByRow {
  template <class Op>
  static int64_t units(const Op&, const OpArgs& a) {
    return a.out[0].shape.rows;
  }
  template <class Op>
  static int64_t grain(const Op&, const OpArgs&) {
    return 1;
  }
  template <class Op>
  static size_t scratch(const Op&, const OpArgs&) {
    return 0;
  }
};

template <class V>
struct GetRowsKernel : ByRow {
  static void run(const GetRows& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      weight_row(a.in[0], op.index(*a.batch, t), a.out[0].out_row(t));
  }
};

template <class V>
struct TakeRowsKernel : ByRow {
  static void run(const TakeRows&, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t r = first; r < last; ++r)
      __builtin_memcpy(a.out[0].out_row(r), a.in[0].row(a.batch->outputs[r]),
                       a.in[0].shape.cols * sizeof(float));
  }
};

template <class V>
struct BinaryKernel : ByRow {
  static void run(const Binary& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        const auto x = load_n<V>(a.in[0].row(t) + i, k), y = load_n<V>(a.in[1].row(t) + i, k);
        store_n<V>(a.out[0].out_row(t) + i,
                   op.kind == Binary::Kind::add ? V::add(x, y) : V::mul(x, y), k);
      });
  }
};

template <class V>
struct UnaryKernel : ByRow {
  static void run(const Unary& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        store_n<V>(a.out[0].out_row(t) + i, activate<V>(op.kind, load_n<V>(a.in[0].row(t) + i, k)),
                   k);
      });
  }
};

template <class V>
struct SoftMaxKernel : ByRow {
  static void run(const SoftMax& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const int64_t n = a.in[0].shape.cols;
    for (int64_t t = first; t < last; ++t) {
      const float* x = a.in[0].row(t);
      float* y = a.out[0].out_row(t);
      auto most = V::set1(-INFINITY), sum = V::zero();
      each_vector(n, [&](int64_t i, int64_t k) {
        most = V::max(V::mul(load_n<V>(x + i, k, x[0]), V::set1(op.scale)), most);
      });
      const auto m = V::set1(V::maximum(most));
      each_vector(n, [&](int64_t i, int64_t k) {
        store_n<V>(y + i, exp<V>(V::sub(V::mul(load_n<V>(x + i, k), V::set1(op.scale)), m)), k);
        sum = V::add(sum, load_n<V>(y + i, k));
      });
      const auto total = V::set1(V::sum(sum));
      each_vector(n, [&](int64_t i, int64_t k) {
        store_n<V>(y + i, V::div(load_n<V>(y + i, k), total), k);
      });
    }
  }
};

// The pair rotation is scalar code with an explicit fma; it is a thousandth of the work.
template <class V>
struct RopeKernel : ByRow {
  static void run(const Rope& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      for (int h = 0; h < op.heads; ++h)
        Rope::head(a.in[0].row(t) + h * op.head_dim, a.out[0].out_row(t) + h * op.head_dim,
                   op.angles(*a.batch, t), op.head_dim, op.dim);
  }
};

// A unit is some channels of all tokens: it alone reads and writes them in the states.
template <class V>
struct ShortConvKernel {
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
    for (int64_t begin = 0, end; begin < a.in[0].shape.rows; begin = end) {
      for (end = begin + 1; end < a.in[0].shape.rows && b.sequences[end] == b.sequences[begin];)
        ++end;
      const RecurrentView& view = b.states.recurrent[op.state];
      float* const kept = reinterpret_cast<float*>(view.block(b.table(view, begin)[0]));
      for (int64_t t = begin; t < end; ++t) one_token(op, a, t, t - begin, kept, from, to);
      const int back = op.taps - 1;
      for (int64_t t = end - back > begin ? end - back : begin; t < end; ++t)
        __builtin_memcpy(kept + b.cells[t] % back * op.cols + from, a.in[0].row(t) + from,
                         (to - from) * sizeof(float));
    }
  }
  // Channels [from, to) of token t, `before` tokens of whose sequence stand before it.
  static void one_token(const ShortConv& op, const OpArgs& a, int64_t t, int64_t before,
                        const float* kept, int64_t from, int64_t to) {
    const int cell = a.batch->cells[t], back = op.taps - 1;
    each_vector(to - from, [&](int64_t i, int64_t n) {
      auto sum = V::zero();
      for (int ago = back < cell ? back : cell; ago >= 0; --ago) {
        const float* x =
            ago <= before ? a.in[0].row(t - ago) : kept + (cell - ago) % back * op.cols;
        const float* w = a.in[1].floats() + (back - ago) * op.cols;
        sum = V::fma(load_n<V>(w + from + i, n), load_n<V>(x + from + i, n), sum);
      }
      store_n<V>(a.out[0].out_row(t) + from + i, sum, n);
    });
  }
};

// A unit is a token: its keys, its values and, with rope, its query.
template <class V>
struct KvWriteKernel : ByRow {
  static int64_t units(const KvWrite&, const OpArgs& a) { return a.in[0].shape.rows; }
  static size_t scratch(const KvWrite& op, const OpArgs&) { return op.kv.k_dim * sizeof(float); }
  static void run(const KvWrite& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    for (int64_t t = first; t < last; ++t)
      for (int h = 0; h < op.kv.heads; ++h)
        op.write(a, t, h, reinterpret_cast<float*>(scratch.own));
    if (!op.rope) return;
    OpArgs turn = a;
    turn.in[0] = a.in[2];
    RopeKernel<V>::run(op.q, turn, first, last, scratch);
  }
};

}  // namespace
}  // namespace chaski
