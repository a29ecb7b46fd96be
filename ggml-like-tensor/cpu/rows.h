// The ops that are one row after another and little arithmetic.
#pragma once
#include "ggml-like-tensor/cpu/kernel.h"
#include "ggml-like-tensor/cpu/math.h"
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/get_rows.h"
#include "ggml-like-tensor/ops/kv_write.h"
#include "ggml-like-tensor/ops/mix.h"
#include "ggml-like-tensor/ops/scale.h"
#include "ggml-like-tensor/ops/soft_max.h"
#include "ggml-like-tensor/ops/take_rows.h"
#include "ggml-like-tensor/ops/top_k.h"

namespace chaski {
namespace {

template <class V>
struct CpuKernel<GetRows, V> : ByRow {
  static void run(const GetRows& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      weight_row(a.in[0], op.index(*a.batch, t), a.out[0].out_row(t));
  }
};

template <class V>
struct CpuKernel<TakeRows, V> : ByRow {
  static void run(const TakeRows&, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t r = first; r < last; ++r)
      __builtin_memcpy(a.out[0].out_row(r), a.in[0].row(a.batch->outputs[r]),
                       a.in[0].shape.cols * sizeof(float));
  }
};

template <class V>
struct CpuKernel<Binary, V> : ByRow {
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
struct CpuKernel<Unary, V> : ByRow {
  static void run(const Unary& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        store_n<V>(a.out[0].out_row(t) + i, activate<V>(op.kind, load_n<V>(a.in[0].row(t) + i, k)),
                   k);
      });
  }
};

template <class V>
struct CpuKernel<Scale, V> : ByRow {
  static void run(const Scale& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const auto factor = V::set1(op.factor), cap = V::set1(op.cap);
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        const auto y = V::mul(load_n<V>(a.in[0].row(t) + i, k), factor);
        store_n<V>(a.out[0].out_row(t) + i, op.cap > 0 ? V::mul(cap, tanh<V>(V::div(y, cap))) : y,
                   k);
      });
  }
};

// Few of a row come before the k-th so far, and those move to their places.
template <class V>
struct CpuKernel<TopK, V> : ByRow {
  static void run(const TopK& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t) {
      const float* x = a.in[0].row(t);
      int32_t* best = a.out[0].out_ints(t);
      int n = 0;
      for (int32_t i = 0; i < a.in[0].shape.cols; ++i) {
        const uint32_t rank = TopK::rank(x[i]);
        if (n == op.k && rank <= TopK::rank(x[best[n - 1]])) continue;
        int at = n < op.k ? n++ : n - 1;
        for (; at > 0 && TopK::rank(x[best[at - 1]]) < rank; --at) best[at] = best[at - 1];
        best[at] = i;
      }
      for (int i = 0; i < n; ++i) a.out[1].out_row(t)[i] = x[best[i]];
    }
  }
};

template <class V>
struct CpuKernel<Mix, V> : ByRow {
  static void run(const Mix&, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const int64_t chosen = a.in[1].shape.cols;
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        auto sum = V::zero();
        for (int64_t j = 0; j < chosen; ++j)
          sum = V::fma(V::set1(a.in[1].row(t)[j]), load_n<V>(a.in[0].row(t * chosen + j) + i, k),
                       sum);
        store_n<V>(a.out[0].out_row(t) + i, sum, k);
      });
  }
};

template <class V>
struct CpuKernel<SoftMax, V> : ByRow {
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
struct CpuKernel<Rope, V> : ByRow {
  static void run(const Rope& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      for (int h = 0; h < op.heads; ++h)
        Rope::head(a.in[0].row(t) + h * op.head_dim, a.out[0].out_row(t) + h * op.head_dim,
                   op.angles(*a.batch, t), op.head_dim, op.dim);
  }
};

// A unit is a token: its keys, its values and, with rope, its query.
template <class V>
struct CpuKernel<KvWrite, V> : ByRow {
  static int64_t units(const KvWrite&, const OpArgs& a) { return a.in[0].shape.rows; }
  static void run(const KvWrite& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    for (int64_t t = first; t < last; ++t)
      for (int h = 0; h < a.batch->kv.layout.heads; ++h) op.write(a, t, h);
    if (!op.rope) return;
    OpArgs turn = a;
    turn.in[0] = a.in[2];
    CpuKernel<Rope, V>::run(op.q, turn, first, last, scratch);
  }
};

}  // namespace
}  // namespace chaski
