// The lightning indexer of DeepSeek sparse attention (DeepSeek-V3.2-Exp, 2025): the cells (batch.h)
// that a token attends to.
//   in 0 q (tokens, heads * k_dim); in 1 the heads' weights (tokens, heads)
//   -> out 0 the chosen cells (tokens, most) i32, ascending, then -1
// The keys are those of the state, which has no values. The score of a cell is the sum over the
// heads, first to last, of weight * max(q . key, 0). A token that sees at most `most` cells chooses
// all of them. Otherwise it chooses the `most` cells with the largest scores; of equal scores the
// earlier cell. A NaN counts as larger than any number, as in top_k.
#pragma once
#include "ggml-like-tensor/ops/attention.h"
#include "ggml-like-tensor/ops/top_k.h"

namespace chaski {

struct LightningIndex {
  static constexpr const char* kName = "lightning_index";
  StateId state = 0;
  int heads = 1;  // of queries; there is one key
  Paged kv;       // the state's sizes
  int most = 1;   // chosen cells of a token

  static ValueKind kind_out(size_t) { return ValueKind::i32; }
  // The attention whose scores are q . key.
  [[gnu::always_inline]] Attention attention() const { return {state, heads, kv}; }

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(kv.heads == 1 && kv.window == 0 && kv.v_inside_k, "the state must be keys of one head");
    ENSURE(in[0].cols == int64_t(heads) * kv.k_dim && in[1] == (Shape{in[0].rows, heads}),
           "every head must have a query and a weight");
    ENSURE(most > 0, "a token must choose a cell");
    return {{in[0].rows, most}};
  }
  Cost cost(const OpArgs& a) const {
    Cost c;
    for (const int32_t cell : a.batch->cells)
      if (cell >= most) c.flops += 2.0 * (cell + 1) * heads * kv.k_dim;
    if (c.flops > 0) c.bytes = attention().cost(a).bytes;
    return c;
  }

  // Writes the cells that a token with `n` scores chooses. It is in lightning_index.cpp: compiled
  // once, so that every instruction set runs the same code.
  void choose(const float* scores, int64_t n, int32_t* chosen) const;

  void reference(const OpArgs& a) const {
    const KvView& view = a.where->states.paged[size_t(state)];
    const Attention plain = attention();
    std::vector<float> k, v, q(size_t(view.layout.k_cols()));
    std::vector<Act> room(q.size() / 32 + 1);
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      const int64_t n = a.batch->cells[size_t(t)] + 1;
      std::vector<double> scores(size_t(n), 0);
      for (int h = 0; h < heads; ++h) {
        const float* from = a.in[0].row(t) + h * kv.k_dim;
        std::fill(std::copy(from, from + kv.k_dim, q.begin()), q.end(), 0.0f);
        KvFormats::with(view.layout.format,
                        [&]<class F>(F) { plain.turn<F>(a, view.layout, h, q.data()); });
        if (view.layout.blocks()) {  // the queries of such keys are quantized
          const ActsView acts{room.data(), 1, int64_t(q.size() / 32)};
          QuantizeActs::row(q.data(), acts, 0);
          for (size_t c = 0; c < q.size(); ++c)
            q[c] = acts.at(0, int64_t(c / 32)).d * float(acts.at(0, int64_t(c / 32)).q[c % 32]);
        }
        for (int64_t cell = 0; cell < n; ++cell) {
          Attention::load(view, a.batch->table(view, t)[cell / kPage], 0, int(cell % kPage), k, v);
          double dot = 0;
          for (size_t c = 0; c < q.size(); ++c) dot += double(q[c]) * k[c];
          scores[size_t(cell)] += std::max(dot, 0.0) * a.in[1].row(t)[h];
        }
      }
      const std::vector<float> rounded(scores.begin(), scores.end());
      std::vector<int32_t> order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) {
        return TopK::rank(rounded[size_t(i)]) > TopK::rank(rounded[size_t(j)]);
      });
      order.resize(size_t(std::min<int64_t>(n, most)));
      std::sort(order.begin(), order.end());
      order.resize(size_t(most), -1);
      std::copy(order.begin(), order.end(), a.out[0].out_ints(t));
    }
  }
  static std::vector<Example<LightningIndex>> examples() {
    const Paged keys{1, 32, 0, 0, true}, wide{1, 72, 0, 0, true};
    return {{{0, 4, keys, 300}, {{{5, 128}}, {{5, 4}}}, 5},
            {{1, 20, keys, 3}, {{{3, 640}}, {{3, 20}}}, 3},
            {{0, 6, wide, 517}, {{{1, 432}}, {{1, 6}}}, 1},
            {{0, 2, keys, 1000}, {{{2, 64}}, {{2, 2}}}, 2},
            {{1, 8, keys, 256}, {{{40, 256}}, {{40, 8}}}, 40}};
  }
};

}  // namespace chaski
