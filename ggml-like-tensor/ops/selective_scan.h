// The selective scan of Mamba (Gu and Dao 2023, arXiv 2312.00752). Each channel c keeps `states`
// numbers s. A token decays them by exp(dt_c A_nc), adds dt_c x_c B_n, and reads them by C:
//   s_nc = exp(dt_c A_nc) s_nc + dt_c x_c B_n,  y_c = D_c x_c + the sum over n of C_n s_nc.
//   in 0 x (tokens, cols), in 1 dt (tokens, cols): positive time steps, in 2 B and in 3 C (tokens,
//   states), in 4 A (1, states * cols): negative, state by state, in 5 D (1, cols)
//   -> out 0 y (tokens, cols)
// The state has for every 16 channels (states, 16) floats. It is zero before the first token.
//
// The tokens of a pass are computed one after another. So a token's bits are the same in a prompt,
// in a batch and alone. The order of additions is that of the states. Lanes are channels. The
// state of 16 channels stays in the nearest cache for all tokens of a pass. Chunks would turn sums
// over tokens into matrix products, but not here: the decay differs for every channel and state, so
// its exponential is most of the work, and a chunk needs as many.
#pragma once
#include <algorithm>

#include "ggml-like-tensor/ops/recurrence.h"

namespace chaski {

struct SelectiveScan {
  static constexpr const char* kName = "selective_scan";
  static constexpr bool kRoundsState = true;  // the state's floats are computed, not copied
  StateId state = 0;
  int cols = 0, states = 1;

  Recurrent kept() const { return {state_row(cols) * states * int64_t(sizeof(float))}; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == cols && in[1] == in[0] && in[2] == (Shape{in[0].rows, states}) &&
               in[3] == in[2],
           "every channel must have a time step, and every token two rows of states");
    ENSURE(in[4] == (Shape{1, int64_t(states) * cols}) && in[5] == (Shape{1, cols}),
           "every channel must have its decays");
    return {in[0]};
  }
  Cost cost(const OpArgs& a) const {
    constexpr double kExp = 20;  // operations of an exponential
    return {2 * double(kept().bytes), (kExp + 6) * double(a.in[0].shape.rows) * states * cols};
  }
  void reference(const OpArgs& a) const {
    const Batch& b = *a.batch;
    each_sequence(b, a.in[0].shape.rows, [&](int64_t first, int64_t end) {
      float* const kept = state_at(a, state, first);
      if (b.cells[size_t(first)] == 0) std::fill_n(kept, state_row(cols) * states, 0.0f);
      for (int64_t t = first; t < end; ++t)
        for (int64_t c = 0; c < cols; ++c) {
          float* const s = kept + c / kStateLanes * kStateLanes * states + c % kStateLanes;
          const double dt = a.in[1].row(t)[c], x = a.in[0].row(t)[c];
          double y = a.in[5].floats()[c] * x;
          for (int64_t n = 0; n < states; ++n) {
            float& kept_n = s[n * kStateLanes];
            kept_n = float(std::exp(dt * a.in[4].floats()[n * cols + c]) * kept_n +
                           dt * x * a.in[2].row(t)[n]);
            y += double(a.in[3].row(t)[n]) * kept_n;
          }
          a.out[0].out_row(t)[c] = float(y);
        }
    });
  }
  static std::vector<Example<SelectiveScan>> examples() {
    const auto of = [](int64_t tokens, int cols, int states) {
      const Input x{{tokens, cols}}, row{{tokens, states}};
      const Input dt{.shape = {tokens, cols}, .spread = 0.5f, .centre = 0.5f},
          decay{.shape = {1, int64_t(states) * cols}, .weight = true, .spread = 1, .centre = -1};
      return Example<SelectiveScan>{
          {0, cols, states}, {x, dt, row, row, decay, {{1, cols}, Format::f32, true}}, tokens};
    };
    return {of(5, 45, 16), of(21, 64, 7), of(1, 16, 16), of(7, 33, 1)};
  }
};

}  // namespace chaski
