// The gated delta rule (Yang et al. 2024, arXiv 2412.06464). A value head keeps a matrix S of k_dim
// rows and v_dim columns, which maps keys to values. A token decays it, replaces a part `beta` of
// what it has for the key by the value, and reads it by the query:
//   S = exp(dt A) S,  S = S + k beta (v - k^T S),  y = S^T q / sqrt(k_dim).
// q and k are first divided by their lengths, sqrt(|x|^2 + eps). If `by_channel`, each row of S has
// a decay of its own (Kimi Delta Attention, 2025, arXiv 2510.26692).
//   in 0 q and in 1 k (tokens, k_heads * k_dim), in 2 v (tokens, heads * v_dim), in 3 dt (tokens,
//   heads): positive time steps; if `by_channel` (tokens, heads * k_dim), in 4 beta (tokens,
//   heads), in 5 A (1, heads): negative
//   -> out 0 y (tokens, heads * v_dim)
// Key heads serve heads / k_heads neighbouring value heads, or, if `tiled`, value heads k_heads
// apart. The state of a head is (k_dim, v_dim) floats, in blocks of columns (recurrence.h). It is
// zero before the first token.
//
// The tokens of a pass are computed one after another. So a token's bits are the same in a prompt,
// in a batch and alone. The order of additions is that of the rows. Lanes are columns. A unit
// is 32 columns of a head, whose state of k_dim * 128 bytes stays in the nearest cache for all
// tokens of a pass. A token costs 4 multiply-adds for each number of the state. Chunks of 64
// positions would cost 3, and 32 (3 k_dim + 2 v_dim) for the products inside of the chunk and its
// triangular system: 1.06 of the work at 128 x 128. If the system is solved only when the state is
// known, it is 2 k_dim, and 1.00.
#pragma once
#include <algorithm>

#include "ggml-like-tensor/ops/recurrence.h"

namespace chaski {

struct DeltaRule {
  static constexpr const char* kName = "delta_rule";
  static constexpr bool kRoundsState = true;
  StateId state = 0;
  int heads = 1, k_heads = 1, k_dim = 1, v_dim = 1;  // heads: of values
  bool tiled = false;
  float eps = 1e-6f;
  bool by_channel = false;

  HeadState of_head() const { return {k_dim, v_dim}; }
  Recurrent kept() const { return {of_head().size() * heads * int64_t(sizeof(float))}; }
  // Where the query and key of a value head begin in their rows.
  int64_t key_at(int64_t head) const {
    return (tiled ? head % k_heads : head / (heads / k_heads)) * k_dim;
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    const int64_t rows = in[0].rows;
    ENSURE(heads % k_heads == 0 && in[0] == (Shape{rows, int64_t(k_heads) * k_dim}) &&
               in[1] == in[0] && in[2] == (Shape{rows, int64_t(heads) * v_dim}),
           "every head must have its q, k and v");
    ENSURE(in[3] == (Shape{rows, int64_t(heads) * (by_channel ? k_dim : 1)}) &&
               in[4] == (Shape{rows, heads}) && in[5] == (Shape{1, heads}),
           "every head must have its dt, beta and A");
    return {{in[0].rows, int64_t(heads) * v_dim}};
  }
  Cost cost(const OpArgs& a) const {
    return {2 * double(kept().bytes), 8.0 * double(a.in[0].shape.rows) * heads * v_dim * k_dim};
  }
  void reference(const OpArgs& a) const {
    const Batch& b = *a.batch;
    const HeadState of = of_head();
    const auto inverse_length = [&](const float* x) {
      double sum = 0;
      for (int i = 0; i < k_dim; ++i) sum += double(x[i]) * x[i];
      return 1 / std::sqrt(sum + eps);
    };
    each_sequence(b, a.in[0].shape.rows, [&](int64_t first, int64_t end) {
      float* const kept = state_at(a, state, first);
      if (b.cells[size_t(first)] == 0) std::fill_n(kept, of.size() * heads, 0.0f);
      for (int64_t t = first; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const float *q = a.in[0].row(t) + key_at(h), *k = a.in[1].row(t) + key_at(h);
          const double of_k = inverse_length(k), of_q = inverse_length(q) / std::sqrt(k_dim);
          const auto decay = [&](int64_t i) {
            const float dt = a.in[3].row(t)[by_channel ? h * k_dim + i : h];
            return std::exp(double(dt) * a.in[5].floats()[h]);
          };
          for (int64_t v = 0; v < state_row(v_dim); ++v) {
            float* const s = kept + h * of.size() + of.at(v);
            const int64_t row = of.stride(v);
            double known = 0, y = 0;
            for (int64_t i = 0; i < k_dim; ++i) known += k[i] * of_k * decay(i) * s[i * row];
            const double value = v < v_dim ? a.in[2].row(t)[h * v_dim + v] : 0,
                         delta = a.in[4].row(t)[h] * (value - known);
            for (int64_t i = 0; i < k_dim; ++i) {
              s[i * row] = float(decay(i) * s[i * row] + k[i] * of_k * delta);
              y += q[i] * of_q * s[i * row];
            }
            if (v < v_dim) a.out[0].out_row(t)[h * v_dim + v] = float(y);
          }
        }
    });
  }
  static std::vector<Example<DeltaRule>> examples() {
    const auto of = [](int64_t tokens, DeltaRule op) {
      const Input key{{tokens, int64_t(op.k_heads) * op.k_dim}},
          value{{tokens, int64_t(op.heads) * op.v_dim}};
      const int64_t steps = int64_t(op.heads) * (op.by_channel ? op.k_dim : 1);
      const Input dt{.shape = {tokens, steps}, .spread = 0.5f, .centre = 0.5f},
          part{.shape = {tokens, op.heads}, .spread = 0.5f, .centre = 0.5f},
          decay{.shape = {1, op.heads}, .weight = true, .spread = 1, .centre = -1};
      return Example<DeltaRule>{op, {key, key, value, dt, part, decay}, tokens};
    };
    return {of(5, {0, 4, 2, 16, 64}),
            of(21, {0, 4, 2, 9, 12, true}),
            of(1, {0, 2, 2, 40, 40}),
            of(7, {0, 1, 1, 24, 100}),
            of(5, {0, 3, 3, 24, 40, false, 1e-6f, true}),
            of(21, {0, 2, 1, 9, 12, false, 1e-6f, true})};
  }
};

}  // namespace chaski
