// The scan of Mamba 2 (Dao and Gu 2024, arXiv 2405.21060). A head keeps a matrix s of `states` rows
// and `head_dim` columns. A token decays it by one number, adds a product, and reads it:
//   s_np = exp(dt A) s_np + dt x_p B_n,  y_p = D x_p + the sum over n of C_n s_np.
//   in 0 x, B and C (tokens, heads * head_dim + 2 * groups * states): x by head, then B by group,
//   then C by group. Neighbouring heads share a group. in 1 dt (tokens, heads): positive time
//   steps, in 2 A (1, heads): negative, in 3 D (1, heads)
//   -> out 0 y (tokens, heads * head_dim).
// Without `timed`, dt is 1 and D is 0, A is in 1, and in 0 has C, B and x of each head, one after
// the other. With queries as C, keys as B and values as x that is linear attention with one decay
// for each head: lightning attention (Qin et al. 2024, arXiv 2401.04658).
//
// The state of a head is (states, head_dim) floats, in blocks of columns (recurrence.h). It is zero
// before the first token.
//
// The tokens of a pass are computed one after another. So a token's bits are the same in a prompt,
// in a batch and alone. The order of additions is that of the states. Lanes are columns. A unit
// is 32 columns of a head, whose state of states * 128 bytes stays in the nearest cache for all
// tokens of a pass. A token costs 3 multiply-adds for each number of the state. Chunks of 64
// positions would cost 2, and 32 (states + head_dim) for the products inside of the chunk. Those of
// states are the same for all heads of a group. So at 128 states and 64 columns it is 0.75 of the
// work with 64 heads in a group, and 0.92 with one; at 128 and 128 with one head it is 0.83.
#pragma once
#include <algorithm>

#include "ggml-like-tensor/ops/recurrence.h"

namespace chaski {

struct StateScan {
  static constexpr const char* kName = "state_scan";
  static constexpr bool kRoundsState = true;
  StateId state = 0;
  int heads = 1, head_dim = 0, groups = 1, states = 1;
  bool timed = true;

  HeadState of_head() const { return {states, head_dim}; }
  Recurrent kept() const { return {of_head().size() * heads * int64_t(sizeof(float))}; }
  int64_t rows() const { return int64_t(heads) * head_dim; }  // columns of x and y
  // Where x, B and C of a head begin in a row of input 0.
  int64_t x_at(int64_t head) const { return timed ? head * head_dim : head_at(head) + 2 * states; }
  int64_t b_at(int64_t head) const {
    return timed ? rows() + head / (heads / groups) * states : head_at(head) + states;
  }
  int64_t c_at(int64_t head) const {
    return timed ? rows() + (groups + head / (heads / groups)) * states : head_at(head);
  }
  int64_t head_at(int64_t head) const { return head * (head_dim + 2 * int64_t(states)); }

  const float* decays(const OpArgs& a) const { return a.in[timed ? 2 : 1].floats(); }
  float dt(const OpArgs& a, int64_t t, int64_t head) const {
    return timed ? a.in[1].row(t)[head] : 1;
  }
  float direct(const OpArgs& a, int64_t head) const { return timed ? a.in[3].floats()[head] : 0; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(heads % groups == 0 && (timed || groups == heads) &&
               in[0].cols == rows() + 2 * int64_t(groups) * states,
           "a row must have x of every head, and B and C of every group");
    ENSURE(timed
               ? in[1] == (Shape{in[0].rows, heads}) && in[2] == (Shape{1, heads}) && in[3] == in[2]
               : in[1] == (Shape{1, heads}),
           "every head must have an A, and with time steps (timed) also a dt and a D");
    return {{in[0].rows, rows()}};
  }
  Cost cost(const OpArgs& a) const {
    return {2 * double(kept().bytes), 6.0 * double(a.in[0].shape.rows * rows()) * states};
  }
  void reference(const OpArgs& a) const {
    const Batch& b = *a.batch;
    const HeadState of = of_head();
    each_sequence(b, a.in[0].shape.rows, [&](int64_t first, int64_t end) {
      float* const kept = state_at(a, state, first);
      if (b.cells[size_t(first)] == 0) std::fill_n(kept, of.size() * heads, 0.0f);
      for (int64_t t = first; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const float* in = a.in[0].row(t);
          const double step = dt(a, t, h), decay = std::exp(step * decays(a)[h]);
          for (int64_t p = 0; p < state_row(head_dim); ++p) {
            const double x = p < head_dim ? in[x_at(h) + p] : 0;
            double y = direct(a, h) * x;
            for (int64_t n = 0; n < states; ++n) {
              float& s = kept[h * of.size() + of.at(p) + n * of.stride(p)];
              s = float(decay * s + step * x * in[b_at(h) + n]);
              y += double(in[c_at(h) + n]) * s;
            }
            if (p < head_dim) a.out[0].out_row(t)[h * head_dim + p] = float(y);
          }
        }
    });
  }
  static std::vector<Example<StateScan>> examples() {
    const auto of = [](int64_t tokens, StateScan op) {
      const Input x{{tokens, op.rows() + 2 * int64_t(op.groups) * op.states}};
      const Input dt{.shape = {tokens, op.heads}, .spread = 0.5f, .centre = 0.5f},
          decay{.shape = {1, op.heads}, .weight = true, .spread = 1, .centre = -1};
      if (!op.timed) return Example<StateScan>{op, {x, decay}, tokens};
      return Example<StateScan>{op, {x, dt, decay, {{1, op.heads}, Format::f32, true}}, tokens};
    };
    return {of(5, {0, 4, 64, 2, 16}), of(21, {0, 3, 12, 1, 7}), of(1, {0, 2, 40, 2, 33}),
            of(7, {0, 1, 100, 1, 3}), of(9, {0, 3, 40, 3, 24, false})};
  }
};

}  // namespace chaski
