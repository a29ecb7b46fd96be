// The ops that handle rows one after another with little arithmetic.
#pragma once
#include "ggml-like-tensor/cpu/kernel.h"
#include "ggml-like-tensor/cpu/math.h"
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/blend.h"
#include "ggml-like-tensor/ops/columns.h"
#include "ggml-like-tensor/ops/get_rows.h"
#include "ggml-like-tensor/ops/join.h"
#include "ggml-like-tensor/ops/kv_write.h"
#include "ggml-like-tensor/ops/mean_product.h"
#include "ggml-like-tensor/ops/mix.h"
#include "ggml-like-tensor/ops/reorder.h"
#include "ggml-like-tensor/ops/round_rows.h"
#include "ggml-like-tensor/ops/route.h"
#include "ggml-like-tensor/ops/scale.h"
#include "ggml-like-tensor/ops/scale_chosen.h"
#include "ggml-like-tensor/ops/set_aside.h"
#include "ggml-like-tensor/ops/soft_max.h"
#include "ggml-like-tensor/ops/sparse_mixer.h"
#include "ggml-like-tensor/ops/take_rows.h"
#include "ggml-like-tensor/ops/top_k.h"
#include "ggml-like-tensor/ops/xielu.h"

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
    for (int64_t t = first; t < last; ++t) {
      const float* const b = a.in[1].row(a.in[1].shape.rows == 1 ? 0 : t);
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        const auto x = load_n<V>(a.in[0].row(t) + i, k), y = load_n<V>(b + i, k);
        store_n<V>(a.out[0].out_row(t) + i,
                   op.kind == Binary::Kind::add   ? V::add(x, y)
                   : op.kind == Binary::Kind::mul ? V::mul(x, y)
                                                  : clamped_swiglu<V>(x, y),
                   k);
      });
    }
  }
};

template <class V>
struct CpuKernel<Unary, V> : ByRow {
  static void run(const Unary& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const auto rows = [&](auto compute) {
      for (int64_t t = first; t < last; ++t)
        each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
          store_n<V>(a.out[0].out_row(t) + i, compute(load_n<V>(a.in[0].row(t) + i, k)), k);
        });
    };
    if (op.kind == Activation::silu)
      rows([](typename V::F x) { return silu<V>(x); });
    else
      rows([&](typename V::F x) { return activate<V>(op.kind, x); });
  }
};

template <class V>
struct CpuKernel<Xielu, V> : ByRow {
  static void run(const Xielu& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const auto eps = V::set1(op.eps), beta = V::set1(op.beta), one = V::set1(1);
    const auto positive = V::set1(op.positive), negative = V::set1(op.negative);
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        const auto x = load_n<V>(a.in[0].row(t) + i, k);
        const auto e = exp<V>(V::where_less(x, eps, x, eps));
        const auto below = V::mul(negative, V::sub(V::sub(e, one), x)),
                   above = V::mul(positive, V::mul(x, x));
        const auto curve = V::where_less(V::zero(), x, above, below);
        store_n<V>(a.out[0].out_row(t) + i, V::fma(beta, x, curve), k);
      });
  }
};

template <class V>
struct CpuKernel<Scale, V> : ByRow {
  static void run(const Scale& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const auto factor = V::set1(op.factor), cap = V::set1(op.cap);
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        auto y = V::mul(load_n<V>(a.in[0].row(t) + i, k), factor);
        if (op.cap > 0) y = V::mul(cap, tanh<V>(V::div(y, cap)));
        if (op.clip > 0) {  // min and max would lose a NaN
          y = V::where_less(y, V::set1(-op.clip), V::set1(-op.clip), y);
          y = V::where_less(V::set1(op.clip), y, V::set1(op.clip), y);
        }
        store_n<V>(a.out[0].out_row(t) + i, y, k);
      });
  }
};

// Few values of a row exceed the k-th largest so far; only those are inserted.
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
struct CpuKernel<Reorder, V> : ByRow {
  static void run(const Reorder&, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const int64_t cols = a.in[0].shape.cols;
    const float* order = a.in[1].floats();
    for (int64_t t = first; t < last; ++t)
      for (int64_t i = 0; i < cols; ++i)
        a.out[0].out_row(t)[i] = a.in[0].row(t)[Reorder::column(order[i], cols)];
  }
};

template <class V>
struct CpuKernel<SetAside, V> : ByRow {
  static void run(const SetAside&, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const int64_t cols = a.in[0].shape.cols, count = a.in[1].shape.cols;
    for (int64_t t = first; t < last; ++t) {
      float *rest = a.out[0].out_row(t), *taken = a.out[1].out_row(t);
      __builtin_memcpy(rest, a.in[0].row(t), size_t(cols) * sizeof(float));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t column = Reorder::column(a.in[1].floats()[i], cols);
        taken[i] = a.in[0].row(t)[column], rest[column] = 0;
      }
    }
  }
};

template <class V>
struct CpuKernel<Columns, V> : ByRow {
  static void run(const Columns& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      __builtin_memcpy(a.out[0].out_row(t), a.in[0].row(t) + op.first, op.count * sizeof(float));
  }
};

template <class V>
struct CpuKernel<Join, V> : ByRow {
  static void run(const Join& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    for (int64_t t = first; t < last; ++t) op.row(a, t);
  }
};

template <class V>
struct CpuKernel<Blend, V> : ByRow {
  static void run(const Blend& op, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const int n = a.n_in - 1;
    for (int64_t t = first; t < last; ++t)
      each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
        auto sum = V::zero();
        for (int j = 0; j < n; ++j)
          sum =
              V::fma(V::set1(a.in[n].row(t)[op.first + j]), load_n<V>(a.in[j].row(t) + i, k), sum);
        store_n<V>(a.out[0].out_row(t) + i, sum, k);
      });
  }
};

template <class V>
struct CpuKernel<MeanProduct, V> : ByRow {
  static void run(const MeanProduct&, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    const int64_t n = a.in[0].shape.cols;
    for (int64_t t = first; t < last; ++t) {
      const float* b = MeanProduct::row_of_b(a, t);
      auto sum = V::zero();
      each_vector(n, [&](int64_t i, int64_t k) {
        sum = V::fma(load_n<V>(a.in[0].row(t) + i, k), load_n<V>(b + i, k), sum);
      });
      a.out[0].out_row(t)[0] = V::sum(sum) / float(n);
    }
  }
};

template <class V>
struct CpuKernel<RoundRows, V> : ByRow {
  static void run(const RoundRows&, const OpArgs& a, int64_t first, int64_t last, const Scratch&) {
    const int64_t n = a.in[0].shape.cols;
    for (int64_t t = first; t < last; ++t) {
      const float* x = a.in[0].row(t);
      auto most = V::set1(RoundRows::kSmallest), zero = V::zero();
      each_vector(n, [&](int64_t i, int64_t k) {
        most = V::max(most, V::abs(load_n<V>(x + i, k)));
        zero = V::add(zero, V::mul(load_n<V>(x + i, k), V::zero()));
      });
      const bool finite = V::sum(zero) == 0;
      const float largest = V::maximum(most);
      const auto inverse = V::set1(127 / largest), nan = V::set1(__builtin_nanf(""));
      each_vector(n, [&](int64_t i, int64_t k) {
        const auto whole = V::to_float(V::to_int(V::mul(load_n<V>(x + i, k), inverse)));
        store_n<V>(a.out[0].out_row(t) + i, finite ? whole : nan, k);
      });
      a.out[1].out_row(t)[0] = finite ? largest / 127 : __builtin_nanf("");
    }
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

template <class V>
struct CpuKernel<Route, V> : ByRow {
  static size_t scratch(const Route&, const OpArgs& a) {
    return 2 * size_t(a.in[0].shape.cols) * sizeof(float);
  }
  static void run(const Route& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const int64_t n = a.in[0].shape.cols;
    const float* bias = op.biases(a);
    auto *score = reinterpret_cast<float*>(scratch.own), *choice = score + n;
    for (int64_t t = first; t < last; ++t) {
      op.score == Route::Score::sigmoid ? sigmoids(a.in[0].row(t), n, score)
                                        : parts(a.in[0].row(t), n, score);
      for (int64_t i = 0; i < n; ++i) choice[i] = bias ? score[i] + bias[i] : score[i];
      op.choose(score, choice, n, a.out[0].out_ints(t), a.out[1].out_row(t));
    }
  }
  static void sigmoids(const float* x, int64_t n, float* y) {
    each_vector(n, [&](int64_t i, int64_t k) {
      store_n<V>(y + i, activate<V>(Activation::sigmoid, load_n<V>(x + i, k)), k);
    });
  }
  // The soft-max of the row, as CpuKernel<SoftMax> computes it.
  static void parts(const float* x, int64_t n, float* y) {
    auto most = V::set1(-INFINITY), sum = V::zero();
    each_vector(n, [&](int64_t i, int64_t k) { most = V::max(load_n<V>(x + i, k, x[0]), most); });
    const auto m = V::set1(V::maximum(most));
    each_vector(n, [&](int64_t i, int64_t k) {
      store_n<V>(y + i, exp<V>(V::sub(load_n<V>(x + i, k), m)), k);
      sum = V::add(sum, load_n<V>(y + i, k));
    });
    const auto total = V::set1(V::sum(sum));
    each_vector(
        n, [&](int64_t i, int64_t k) { store_n<V>(y + i, V::div(load_n<V>(y + i, k), total), k); });
  }
};

template <class V>
struct CpuKernel<ScaleChosen, V> : ByRow {
  static void run(const ScaleChosen&, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      for (int64_t j = 0; j < a.in[0].shape.cols; ++j)
        a.out[0].out_row(t)[j] = a.in[0].row(t)[j] * a.in[2].floats()[a.in[1].ints(t)[j]];
  }
};

template <class V>
struct CpuKernel<SparseMixer, V> : ByRow {
  static void run(const SparseMixer& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch&) {
    for (int64_t t = first; t < last; ++t)
      for (int64_t j = 0; j < a.in[1].shape.cols; ++j) {
        const int32_t* chosen = a.in[1].ints(t);
        const float *x = a.in[0].row(t), most = x[chosen[j]];
        auto sum = V::zero();
        each_vector(a.in[0].shape.cols, [&](int64_t i, int64_t k) {
          float near[16];
          for (int64_t n = 0; n < 16; ++n) {
            const bool counts = n < k && !SparseMixer::is_before(chosen, j, i + n) &&
                                !SparseMixer::is_far(most, x[i + n], op.limit);
            near[n] = counts ? x[i + n] - most : -INFINITY;
          }
          sum = V::add(sum, exp<V>(V::load(near)));
        });
        a.out[0].out_row(t)[j] = 1 / V::sum(sum);
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
                   op.angles(a, t), op.head_dim, op.dim);
  }
};

// A unit is a store and, with rope, also a token's query.
template <class V>
struct CpuKernel<KvWrite, V> : ByRow {
  static int64_t units(const KvWrite& op, const OpArgs& a) {
    const int64_t stores = op.stores(a).size(), queries = op.rope ? a.in[2].shape.rows : 0;
    return stores > queries ? stores : queries;
  }
  static size_t scratch(const KvWrite& op, const OpArgs&) {
    return (op.kv.k_dim + op.kv.v_dim) * sizeof(float);
  }
  static void run(const KvWrite& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    const int64_t stores = op.stores(a).size();
    for (int64_t s = first; s < last && s < stores; ++s)
      for (int h = 0; h < op.kv.heads; ++h)
        op.write(a, op.stores(a)[s], h, reinterpret_cast<float*>(scratch.own));
    if (!op.rope) return;
    OpArgs turn = a;
    turn.in[0] = a.in[2];
    const int64_t queries = a.in[2].shape.rows;
    CpuKernel<Rope, V>::run(op.q, turn, first, last < queries ? last : queries, scratch);
  }
};

}  // namespace
}  // namespace chaski
