// The memory of RWKV 6 and 7 (Peng et al. 2024 and 2025, arXiv 2404.05892 and 2503.14456). A head
// keeps a matrix S, which maps keys to values. A token decays each row of it, adds a product, and
// reads it by r:
//   RWKV 6:  y = S^T r + (the sum of r u k) v,  S = diag(exp(-exp(w))) S + k v^T
//   RWKV 7:  S = diag(exp(-m sigmoid(w))) S - (kk a) (kk^T S) + k v^T,  y = S^T r,
//            z = (the sum of r u k) v.
// m is exp(-1/2), and kk is first divided by its length.
//   in 0 r, in 1 k, in 2 v, in 3 w (tokens, heads * head_dim), in 4 u (1, heads * head_dim); if
//   `removes`, which is RWKV 7: in 5 kk, in 6 a (tokens, heads * head_dim)
//   -> out 0 y (tokens, heads * head_dim); if `removes`: out 1 z, of the same shape
// The state of a head is (head_dim, head_dim) floats, in blocks of columns (recurrence.h). It is
// zero before the first token.
//
// The tokens of a pass are computed one after another. So a token's bits are the same in a prompt,
// in a batch and alone. The order of additions is that of the rows. Lanes are columns. A unit is 32
// columns of a head, whose state of head_dim * 128 bytes stays in the nearest cache for all tokens
// of a pass. A token of RWKV 6 costs 4 multiply-adds for each number of the state. Chunks of 64
// positions would cost 2, and 64 head_dim for the products inside of the chunk: 0.75 of the work at
// 64 x 64. But they divide keys by the decays of up to 64 tokens, which overflows where exp(w) is
// above 1.4. A token of RWKV 7 costs 5, and in chunks 4 and 256 head_dim: 1.60 of the work.
#pragma once
#include <algorithm>

#include "ggml-like-tensor/ops/recurrence.h"

namespace chaski {

struct Wkv {
  static constexpr const char* kName = "wkv";
  static constexpr bool kRoundsState = true;
  static constexpr float kMostDecay = 0.60653066f;  // m
  static constexpr float kEps = 1e-24f;             // of the square of kk's length
  StateId state = 0;
  int heads = 1, head_dim = 1;
  bool removes = false;

  HeadState of_head() const { return {head_dim, head_dim}; }
  Recurrent kept() const { return {of_head().size() * heads * int64_t(sizeof(float))}; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    const Shape row{in[0].rows, int64_t(heads) * head_dim};
    for (size_t i : {0, 1, 2, 3}) ENSURE(in[i] == row, "every head must have its r, k, v and w");
    ENSURE(in[4] == (Shape{1, row.cols}), "every head must have its bonus");
    if (!removes) return {row};
    ENSURE(in[5] == row && in[6] == row, "every head must have its kk and a");
    return {row, row};
  }
  Cost cost(const OpArgs& a) const {
    const double flops = (removes ? 10.0 : 8.0) * double(a.in[0].shape.rows) * heads;
    return {2 * double(kept().bytes), flops * head_dim * head_dim};
  }
  void reference(const OpArgs& a) const {
    const Batch& b = *a.batch;
    each_sequence(b, a.in[0].shape.rows, [&](int64_t first, int64_t end) {
      float* const kept = state_at(a, state, first);
      if (b.cells[size_t(first)] == 0) std::fill_n(kept, of_head().size() * heads, 0.0f);
      for (int64_t t = first; t < end; ++t)
        for (int64_t at = 0; at < int64_t(heads) * head_dim; at += head_dim)
          one_token(a, t, at, kept + at / head_dim * of_head().size());
    });
  }
  static std::vector<Example<Wkv>> examples() {
    const auto of = [](int64_t tokens, Wkv op) {
      const int64_t cols = int64_t(op.heads) * op.head_dim;
      const Input x{{tokens, cols}}, rate{.shape = {tokens, cols}, .spread = 0.5f, .centre = 0.5f},
          bonus{.shape = {1, cols}, .weight = true, .spread = 1};
      std::vector<Input> in{x, x, x, rate, bonus};
      if (op.removes) in.insert(in.end(), {x, rate});
      return Example<Wkv>{op, std::move(in), tokens};
    };
    return {of(5, {0, 2, 64}),       of(21, {0, 3, 12}),       of(1, {0, 1, 40}),
            of(5, {0, 2, 64, true}), of(21, {0, 3, 12, true}), of(1, {0, 1, 40, true})};
  }

 private:
  // `at` is the head's first column.
  void one_token(const OpArgs& a, int64_t t, int64_t at, float* kept) const {
    const float *r = a.in[0].row(t) + at, *k = a.in[1].row(t) + at, *v = a.in[2].row(t) + at,
                *w = a.in[3].row(t) + at, *u = a.in[4].floats() + at;
    const float *kk = removes ? a.in[5].row(t) + at : nullptr,
                *part = removes ? a.in[6].row(t) + at : nullptr;
    const HeadState of = of_head();
    double bonus = 0, square = 0;
    for (int i = 0; i < head_dim; ++i) {
      bonus += double(r[i]) * u[i] * k[i];
      if (removes) square += double(kk[i]) * kk[i];
    }
    const double of_kk = 1 / std::sqrt(square + kEps);
    for (int64_t c = 0; c < state_row(head_dim); ++c) {
      float* const s_of = kept + of.at(c);
      const int64_t row = of.stride(c);
      const double value = c < head_dim ? v[c] : 0;
      double y = removes ? 0 : bonus * value, removed = 0;
      for (int64_t i = 0; removes && i < head_dim; ++i) removed += kk[i] * of_kk * s_of[i * row];
      for (int64_t i = 0; i < head_dim; ++i) {
        float& s = s_of[i * row];
        const double pace = removes ? kMostDecay / (1 + std::exp(-double(w[i]))) : std::exp(w[i]);
        if (!removes) y += double(r[i]) * s;
        s = float(std::exp(-pace) * s + k[i] * value -
                  (removes ? kk[i] * of_kk * part[i] * removed : 0));
        if (removes) y += double(r[i]) * s;
      }
      if (c >= head_dim) continue;
      a.out[0].out_row(t)[at + c] = float(y);
      if (removes) a.out[1].out_row(t)[at + c] = float(bonus * value);
    }
  }
};

}  // namespace chaski
