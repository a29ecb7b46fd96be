// The linear attention of Based. A unit is two vectors of columns of a head, as in cpu/scan.h.
#pragma once
#include "ggml-like-tensor/cpu/scan.h"
#include "ggml-like-tensor/ops/taylor_scan.h"

namespace chaski {
namespace {

template <class V>
struct CpuKernel<TaylorScan, V> {
  using Columns = HeadColumns<V>;
  static int64_t units(const TaylorScan& op, const OpArgs&) { return op.heads * op.blocks(); }
  static int64_t grain(const TaylorScan&, const OpArgs&) { return 1; }
  static size_t scratch(const TaylorScan& op, const OpArgs&) {
    return 2 * size_t(op.features()) * sizeof(float);
  }
  static void run(const TaylorScan& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    auto* q = reinterpret_cast<float*>(scratch.own);
    Columns::each(op.head_dim, first, last,
                  [&](int64_t head, int64_t from, int64_t n, auto vectors) {
                    each_sequence(*a.batch, a.in[0].shape.rows, [&](int64_t begin, int64_t end) {
                      tokens<vectors()>(op, a, head, from, n, begin, end, q, q + op.features());
                    });
                  });
  }

  static void features(const TaylorScan& op, const float* x, float* f) {
    const float d = float(op.dim), root = 1 / __builtin_sqrtf(d), half = 1 / __builtin_sqrtf(2 * d),
                first = __builtin_sqrtf(root);
    *f++ = 1;
    for (int64_t i = 0; i < op.dim; ++i) *f++ = x[i] * first;
    for (int64_t i = 0; i < op.dim; ++i) {
      *f++ = x[i] * half * x[i];
      const float by = x[i] * root;
      for (int64_t j = i + 1; j < op.dim; ++j) *f++ = by * x[j];
    }
  }
  // Adds the features of a key to the sums, and returns what divides the result of the query.
  static float divisor(int64_t features, const float* q, const float* k, float* sums) {
    auto all = V::zero();
    each_vector(features, [&](int64_t i, int64_t n) {
      const auto sum = V::add(load_n<V>(sums + i, n), load_n<V>(k + i, n));
      store_n<V>(sums + i, sum, n);
      all = V::fma(load_n<V>(q + i, n), sum, all);
    });
    return V::sum(all) + TaylorScan::kEps;
  }
  // One token over the state. The sums are copied to y at the end, because y is in memory.
  template <int kVectors>
  static void write(int64_t features, float* cells, const float* k, const float* q,
                    const typename V::F* v, typename V::F* y) {
    typename V::F x[kVectors], sums[kVectors];
    for (int i = 0; i < kVectors; ++i) x[i] = v[i], sums[i] = V::zero();
    for (int64_t f = 0; f < features; ++f, cells += kVectors * kStateLanes) {
      const auto add = V::set1(k[f]), read = V::set1(q[f]);
      for (int i = 0; i < kVectors; ++i) {
        const auto next = V::fma(add, x[i], V::load(cells + i * kStateLanes));
        V::store(cells + i * kStateLanes, next);
        sums[i] = V::fma(read, next, sums[i]);
      }
    }
    for (int i = 0; i < kVectors; ++i) y[i] = sums[i];
  }
  // q and k: space for the features of both.
  template <int kVectors>
  static void tokens(const TaylorScan& op, const OpArgs& a, int64_t head, int64_t from, int64_t n,
                     int64_t begin, int64_t end, float* q, float* k) {
    const int64_t features_of_row = op.features();
    float* const kept = state_at(a, op.state, begin) + head * op.head_size();
    float *const cells = kept + op.of_head().at(from), *const sums =
                                                           kept +
                                                           op.sums_at(from / HeadState::kWide);
    if (a.batch->cells[begin] == 0) {
      __builtin_memset(cells, 0, size_t(features_of_row) * kVectors * kStateLanes * sizeof(float));
      __builtin_memset(sums, 0, size_t(state_row(features_of_row)) * sizeof(float));
    }
    for (int64_t t = begin; t < end; ++t) {
      features(op, a.in[0].row(t) + head * op.dim, q);
      features(op, a.in[1].row(t) + head * op.dim, k);
      const auto part = V::set1(1 / divisor(features_of_row, q, k, sums));
      const int64_t at = head * op.head_dim + from;
      typename V::F v[kVectors], y[kVectors];
      for (int i = 0; i < kVectors; ++i)
        v[i] = load_n<V>(a.in[2].row(t) + at + i * kStateLanes, Columns::part(n, i));
      write<kVectors>(features_of_row, cells, k, q, v, y);
      for (int i = 0; i < kVectors; ++i)
        store_n<V>(a.out[0].out_row(t) + at + i * kStateLanes, V::mul(y[i], part),
                   Columns::part(n, i));
    }
  }
};

}  // namespace
}  // namespace chaski
