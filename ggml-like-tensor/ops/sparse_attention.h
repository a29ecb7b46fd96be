// Attention of each token over the cells that it chose (lightning_index.h).
//   in 0 q (tokens, heads * k_dim); in 1 the chosen cells (tokens, most) i32, ascending
//   -> out 0 (tokens, heads * v_dim) and / or acts.
// A token chooses `most` of the cells that it sees, or all if these are fewer.
// Keys and values are those of the state; the values must be inside the keys. The chosen cells are
// numbered from 0 on, and attention cuts these numbers into chunks. So the bits depend on the
// chosen keys alone, and a token that chooses all cells gets the bits of attention.
#pragma once
#include "ggml-like-tensor/ops/attention.h"

namespace chaski {

struct SparseAttention {
  static constexpr const char* kName = "sparse_attention";
  StateId state = 0;
  int heads = 1;  // of queries
  Paged kv;       // the state's sizes
  float scale = 1;

  static ValueKind kind_in(size_t i) { return i == 1 ? ValueKind::i32 : ValueKind::f32; }
  bool leaves_acts() const { return attention().leaves_acts(); }
  [[gnu::always_inline]] Attention attention() const { return {state, heads, kv, scale}; }
  // The number of cells that token t chose.
  [[gnu::always_inline]] static int64_t count(const OpArgs& a, int64_t t) {
    const int64_t seen = a.batch->cells[size_t(t)] + 1;
    return seen < a.in[1].shape.cols ? seen : a.in[1].shape.cols;
  }
  [[gnu::always_inline]] static bool chose_all(const OpArgs& a, int64_t t) {
    return a.batch->cells[size_t(t)] < a.in[1].shape.cols;
  }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch& batch) const {
    ENSURE(kv.v_inside_k && kv.window == 0, "values must be inside keys, without a window");
    ENSURE(in[1].rows == in[0].rows && in[1].cols > 0, "every token must choose cells");
    return attention().shapes(std::vector<Shape>{in[0]}, batch);
  }
  Cost cost(const OpArgs& a) const {
    const KvView& view = a.where->states.paged[size_t(state)];
    Cost c;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      c.flops += 2.0 * double(count(a, t)) * heads * (kv.k_dim + kv.v_dim);
      c.bytes += double(count(a, t)) / kPage * double(view.layout.page_bytes());
    }
    if (view.layout.blocks()) c.integer = c.flops / 2;
    return c;
  }

  // Copies the keys of n cells of a sequence's `table` to the pages at `to`, from the first slot
  // on. It is in sparse_attention.cpp: compiled once, so that every instruction set runs the same
  // code.
  static void gather(const KvView& from, int head, const int32_t* table, const int32_t* cells,
                     int64_t n, std::byte* to);

  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      attention().reference_row(a, t, {}, {a.in[1].ints(t), size_t(count(a, t))});
  }
  // The tokens of examples see more than `most` cells. The cells need not be different here.
  static std::vector<Example<SparseAttention>> examples() {
    const auto cells = [](int64_t tokens, int64_t most, int below) {
      return Input{.shape = {tokens, most}, .below = below};
    };
    const Paged kv{1, 48, 32, 0, true}, wide{1, 72, 64, 0, true}, two{2, 48, 20, 0, true};
    return {{{0, 4, kv, 0.2f}, {{{2, 192}}, cells(2, 300, 509)}, 2},
            {{1, 20, wide, 0.1f}, {{{1, 1440}}, cells(1, 17, 509)}, 1},
            {{0, 4, two, 0.2f}, {{{2, 192}}, cells(2, 256, 509)}, 2},
            {{1, 40, kv, 0.2f}, {{{40, 1920}}, cells(40, 17, 26)}, 40}};
  }
};

}  // namespace chaski
