// The linear attention of Based (Arora et al. 2024, arXiv 2402.18668): e^s of a score s = q k /
// sqrt(d) is replaced by 1 + s + s^2 / 2. This is the product of a feature of q and one of k:
//   f(x) = 1; x_i / d^(1/4) for each i; x_i^2 / sqrt(2 d) for each i; x_i x_j / sqrt(d) for i < j.
// So a head keeps a matrix of a row for each feature, and the sum of the features of its keys:
//   S = S + f(k) v^T,  z = z + f(k),  y = S^T f(q) / z^T f(q).
// The authors have both x_i x_j and x_j x_i, which is the same product from 273 instead of 153
// numbers at d = 16.
//   in 0 q, in 1 k (tokens, heads * d), in 2 v (tokens, heads * head_dim)
//   -> out 0 y (tokens, heads * head_dim).
//
// The state of a head is S in blocks of columns (recurrence.h), then a copy of z for each block, so
// that a unit of work has its own. It is zero before the first token.
//
// The tokens of a pass are computed one after another. So a token's bits are the same in a prompt,
// in a batch and alone. The order of additions is that of the features; z^T f(q) has 16 partial
// sums. Lanes are columns. A unit is 32 columns of a head, whose state of 153 * 128 bytes stays in
// the nearest cache for all tokens of a pass. A token costs 2 multiply-adds for each number of the
// state. Chunks of 64 positions would cost as many, and 32 (dim + head_dim) for the products inside
// of the chunk: 1.13 of the work at 16 channels and 64 columns.
#pragma once
#include <algorithm>

#include "ggml-like-tensor/ops/recurrence.h"

namespace chaski {

struct TaylorScan {
  static constexpr const char* kName = "taylor_scan";
  static constexpr bool kRoundsState = true;
  static constexpr float kEps = 1e-12f;  // of the divisor
  StateId state = 0;
  int heads = 1, dim = 1, head_dim = 1;  // dim: channels of a head's query

  constexpr int64_t features() const { return 1 + dim + int64_t(dim) * (dim + 1) / 2; }
  constexpr HeadState of_head() const { return {features(), head_dim}; }
  constexpr int64_t blocks() const { return (head_dim + HeadState::kWide - 1) / HeadState::kWide; }
  // Where the key sum of a block begins in the state of a head, and the size of that state, in
  // floats.
  constexpr int64_t sums_at(int64_t block) const {
    return of_head().size() + block * state_row(features());
  }
  constexpr int64_t head_size() const { return sums_at(blocks()); }
  Recurrent kept() const { return {head_size() * heads * int64_t(sizeof(float))}; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    const Shape of_q{in[0].rows, int64_t(heads) * dim}, of_v{in[0].rows, int64_t(heads) * head_dim};
    ENSURE(in[0] == of_q && in[1] == of_q && in[2] == of_v, "every head must have its q, k and v");
    return {of_v};
  }
  Cost cost(const OpArgs& a) const {
    return {2 * double(kept().bytes),
            4.0 * double(a.in[0].shape.rows * features()) * heads * (head_dim + double(blocks()))};
  }
  void reference(const OpArgs& a) const {
    const Batch& b = *a.batch;
    each_sequence(b, a.in[0].shape.rows, [&](int64_t first, int64_t end) {
      float* const kept = state_at(a, state, first);
      if (b.cells[size_t(first)] == 0) std::fill_n(kept, head_size() * heads, 0.0f);
      for (int64_t t = first; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) one_token(a, t, h, kept + h * head_size());
    });
  }
  // Makes random numbers a state that tokens can leave: all blocks have the same key sum, and the
  // divisor is not near zero.
  void settle(float* state) const {
    constexpr float kTokens = 100;
    for (float* of = state; of < state + heads * head_size(); of += head_size()) {
      of[sums_at(0)] = kTokens;
      for (int64_t block = 1; block < blocks(); ++block)
        std::copy_n(of + sums_at(0), features(), of + sums_at(block));
    }
  }
  static std::vector<Example<TaylorScan>> examples() {
    const auto of = [](int64_t tokens, TaylorScan op) {
      const Input x{{tokens, int64_t(op.heads) * op.dim}};
      return Example<TaylorScan>{op, {x, x, {{tokens, int64_t(op.heads) * op.head_dim}}}, tokens};
    };
    return {of(5, {0, 2, 16, 64}), of(21, {0, 3, 4, 12}), of(1, {0, 2, 5, 40}),
            of(9, {0, 1, 1, 100})};
  }

 private:
  std::vector<double> features_of(const float* x) const {
    std::vector<double> f{1};
    for (int i = 0; i < dim; ++i) f.push_back(x[i] / std::sqrt(std::sqrt(double(dim))));
    for (int i = 0; i < dim; ++i)
      for (int j = i; j < dim; ++j)
        f.push_back(double(x[i]) * x[j] / std::sqrt((i == j ? 2.0 : 1.0) * dim));
    return f;
  }
  void one_token(const OpArgs& a, int64_t t, int64_t head, float* kept) const {
    const std::vector<double> q = features_of(a.in[0].row(t) + head * dim),
                              k = features_of(a.in[1].row(t) + head * dim);
    double divisor = kEps;
    for (int64_t n = 0; n < features(); ++n) {
      for (int64_t block = 0; block < blocks(); ++block) {
        float& z = kept[sums_at(block) + n];
        z = float(z + k[size_t(n)]);
      }
      divisor += q[size_t(n)] * kept[sums_at(0) + n];
    }
    for (int64_t c = 0; c < state_row(head_dim); ++c) {
      float* const s_of = kept + of_head().at(c);
      const double v = c < head_dim ? a.in[2].row(t)[head * head_dim + c] : 0;
      double y = 0;
      for (int64_t n = 0; n < features(); ++n) {
        float& s = s_of[n * of_head().stride(c)];
        s = float(s + k[size_t(n)] * v);
        y += q[size_t(n)] * s;
      }
      if (c < head_dim) a.out[0].out_row(t)[head * head_dim + c] = float(y / divisor);
    }
  }
};

}  // namespace chaski
