// Scaled dot-product attention of each token over the cells (batch.h) of its sequence, up to its
// own cell. With a full mask it is up to the last cell that the pass has of the sequence. With a
// window it is over the last `window` cells up to its own, or over those of its block of cells
// (state.h). `soft_cap` > 0: scores become cap * tanh(score / cap). `max_bias` > 0: a score is
// reduced by its head's slope() for every cell that it looks back (ALiBi, Press et al. 2022).
// `sinks`: a head's weights are divided by their sum plus e^sink, as if there were one more cell of
// value 0 (Xiao et al. 2024).
//   in 0 q (tokens, heads * k_dim); if the source is the batch, in 1 k (tokens, kv.heads * k_dim)
//   and in 2 v (tokens, kv.heads * v_dim); from pages, in 1 the scales of the keys (1, kv.heads *
//   k_dim) if `scaled_keys` (ops/kv_write.h); then sinks (1, heads) if `sinks`
//   -> out 0 (tokens, heads * v_dim) and / or acts
// Keys and values are those of kv_write, from the state's pages; or, as in an encoder, those of the
// batch itself. In the second case cells are counted from the sequence's first token in the batch.
#pragma once
#include <bit>
#include <numeric>

#include "ggml-like-tensor/ops/hadamard.h"
#include "ggml-like-tensor/ops/kv_write.h"
#include "quant/half.h"

namespace chaski {

struct Attention {
  static constexpr const char* kName = "attention";
  enum class Source { pages, batch };
  enum class Mask { causal, full };
  StateId state = 0;  // -1 if the source is the batch
  int heads = 1;      // query heads
  Paged kv;           // the state's sizes, or what they would be
  float scale = 1, soft_cap = 0, max_bias = 0;
  bool sinks = false;
  Source source = Source::pages;
  Mask mask = Mask::causal;
  bool scaled_keys = false;

  // index among the inputs
  int sinks_at() const { return source == Source::batch ? 3 : 1 + int(scaled_keys); }

  int group() const { return heads / kv.heads; }  // query heads that share a key head
  // Powers of one number for the first 2^n heads. The slopes of the other heads are between them.
  [[gnu::always_inline]] float slope(int head) const {
    const int n = int(std::bit_floor(unsigned(heads)));
    const double step = head < n ? head + 1 : head - n + 0.5;
    return float(__builtin_exp2(-double(max_bias) * step / n));
  }

  bool leaves_acts() const { return kv.v_dim % 32 == 0; }
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == int64_t(heads) * kv.k_dim && heads % kv.heads == 0,
           "query heads must be a multiple of key heads");
    if (source == Source::batch)
      ENSURE(!kv.v_inside_k && in[1] == (Shape{in[0].rows, int64_t(kv.heads) * kv.k_dim}) &&
                 in[2] == (Shape{in[0].rows, int64_t(kv.heads) * kv.v_dim}),
             "every token must have a key and a value");
    ENSURE(!scaled_keys ||
               (source == Source::pages && in[1] == Shape{1, int64_t(kv.heads) * kv.k_dim}),
           "every channel of the keys must have a scale");
    ENSURE(mask == Mask::causal || (kv.window == 0 && max_bias == 0),
           "a window and a bias need a causal mask");
    return {{in[0].rows, int64_t(heads) * kv.v_dim}};
  }
  // Tokens [first, end) of the batch belong to the sequence of token t, which sees cells low..high.
  struct Sight {
    int64_t first, end, cell, low, high;
  };
  // s: the Sight of token t - 1, if t > 0.
  Sight sight(const Batch& b, int64_t t, Sight s) const {
    const int64_t n = int64_t(b.sequences.size());
    if (t == s.end) s.first = t;
    while (s.end < n && b.sequences[size_t(s.end)] == b.sequences[size_t(t)]) ++s.end;
    const auto cell = [&](int64_t of) {
      return source == Source::batch ? of - s.first : int64_t(b.cells[size_t(of)]);
    };
    s.cell = cell(t), s.low = kv.first_seen(s.cell);
    s.high = mask == Mask::full ? cell(s.end - 1) : s.cell;
    return s;
  }

  Cost cost(const OpArgs& a) const {
    Cost c;
    Sight s{};
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      s = sight(*a.batch, t, s);
      c.flops += 2.0 * double(s.high + 1 - s.low) * heads * (kv.k_dim + kv.v_dim);
    }
    if (source == Source::batch) return c;
    const KvView& view = a.where->states.paged[size_t(state)];
    for (const Reading::Group& g : a.batch->readings[size_t(view.pool)].groups)
      c.bytes += double(g.to - g.from) * double(view.layout.page_bytes());
    // for the scores; values are weighted in f32
    if (info(view.layout.format).block > 1) c.integer = c.flops / 2;
    return c;
  }

  // Reads key and value of one position as floats.
  static void load(const KvView& view, int32_t page, int kv_head, int slot, std::vector<float>& k,
                   std::vector<float>& v) {
    const KvLayout& l = view.layout;
    k.resize(l.k_cols()), v.resize(l.v_cols());
    decode_row(l.format, view.keys(kv_head, page), slot, l.k_cols(), k.data());
    if (l.v_inside_k) return v.assign(k.begin(), k.begin() + l.v_dim);
    const std::byte* vt = view.values(kv_head, page);
    KvFormats::with(l.format, [&]<class F>(F) {
      if constexpr (F::kFloat) {
        decode_plain_row(l.format, vt + size_t(slot) * row_bytes(l.format, l.v_cols()), l.v_cols(),
                         v.data());
      } else {
        const auto* scales = reinterpret_cast<const uint16_t*>(vt + l.v_scales<F>(l.v_cols()));
        for (int c = 0; c < l.v_cols(); ++c)
          v[c] = f32_of_f16(scales[l.v_scale(c / 32, slot)]) *
                 float(PageOf<F>::value(uint8_t(vt[l.v_byte<F>(c, slot)]), c % 32));
      }
    });
  }

  // Reads key and value of token t of the batch.
  void load(const OpArgs& a, int64_t t, int kv_head, std::vector<float>& k,
            std::vector<float>& v) const {
    k.assign(a.in[1].row(t) + kv_head * kv.k_dim, a.in[1].row(t) + (kv_head + 1) * kv.k_dim);
    v.assign(a.in[2].row(t) + kv_head * kv.v_dim, a.in[2].row(t) + (kv_head + 1) * kv.v_dim);
  }

  // Scales and rotates a query of k_dim channels as the keys of format F are.
  template <class F>
  [[gnu::always_inline]] void turn(const OpArgs& a, const KvLayout& l, int head, float* q) const {
    const int rotation = l.key_rotation<F>();
    if (rotation > 0 && scaled_keys) {
      const float* scales = a.in[1].floats() + head / group() * kv.k_dim;
      for (int c = 0; c < kv.k_dim; ++c) q[c] *= scales[c];
    }
    hadamard(q, kv.k_dim, rotation);
  }

  // Row t of the result, over these cells.
  void reference_row(const OpArgs& a, int64_t t, const Sight& seen,
                     std::span<const int32_t> cells) const {
    const KvView* view = source == Source::pages ? &a.where->states.paged[size_t(state)] : nullptr;
    std::vector<float> k, v, row(size_t(heads) * size_t(kv.v_dim));
    for (int h = 0; h < heads; ++h) {
      std::vector<float> q(a.in[0].row(t) + h * kv.k_dim, a.in[0].row(t) + (h + 1) * kv.k_dim);
      if (view)
        KvFormats::with(view->layout.format,
                        [&]<class F>(F) { turn<F>(a, view->layout, h, q.data()); });
      std::vector<double> score, sum(kv.v_dim);
      std::vector<std::vector<float>> values;
      double most = -INFINITY, total = 0;
      for (const int32_t cell : cells) {
        if (view)
          load(*view, a.batch->table(*view, t)[cell / kPage], h / group(), int(cell % kPage), k, v);
        else
          load(a, seen.first + cell, h / group(), k, v);
        double s = 0;
        for (int c = 0; c < kv.k_dim; ++c) s += double(q[c]) * k[c];
        s *= scale;
        if (soft_cap > 0) s = soft_cap * std::tanh(s / soft_cap);
        if (max_bias > 0) s += double(slope(h)) * double(cell - seen.cell);
        score.push_back(s), values.push_back(v), most = std::max(most, s);
      }
      if (sinks) {
        most = std::max(most, double(a.in[sinks_at()].floats()[h]));
        total = std::exp(a.in[sinks_at()].floats()[h] - most);
      }
      for (size_t i = 0; i < score.size(); ++i) {
        const double weight = std::exp(score[i] - most);
        total += weight;
        for (int c = 0; c < kv.v_dim; ++c) sum[c] += weight * values[i][c];
      }
      for (int c = 0; c < kv.v_dim; ++c) row[h * kv.v_dim + c] = float(sum[c] / total);
      if (view)
        KvFormats::with(view->layout.format, [&]<class F>(F) {
          hadamard(row.data() + h * kv.v_dim, kv.v_dim, view->layout.value_rotation<F>());
        });
    }
    if (a.out[0].data) std::copy(row.begin(), row.end(), a.out[0].out_row(t));
    if (a.acts.data) QuantizeActs::row(row.data(), a.acts, t);
  }
  void reference(const OpArgs& a) const {
    Sight seen{};
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      seen = sight(*a.batch, t, seen);
      std::vector<int32_t> cells(size_t(seen.high + 1 - seen.low));
      std::iota(cells.begin(), cells.end(), int32_t(seen.low));
      reference_row(a, t, seen, cells);
    }
  }
  // For examples of more than one token, make_batch() in tests/kit/op_support.h spreads the cells
  // over several pages and chunks.
  static std::vector<Example<Attention>> examples() {
    return {
        {{0, 4, {2, 16, 16, 0}, 0.25f}, {{{1, 64}}}, 1},
        {{1, 4, {2, 16, 16, 0}, 0.25f}, {{{21, 64}}}, 21},
        {{0, 4, {2, 16, 16, 9}, 0.25f}, {{{21, 64}}}, 21},
        {{0, 4, {2, 16, 16, 300}, 0.25f, 5.0f}, {{{7, 64}}}, 7},
        {{0, 2, {2, 16, 16, 0}, 0.25f, 30.0f}, {{{3, 32}}}, 3},
        {{1, 20, {1, 48, 48, 0}, 0.25f}, {{{3, 960}}}, 3},
        {{0, 3, {1, 96, 96, 0}, 0.1f}, {{{2, 288}}}, 2},
        // keys wider than values, values wider than keys
        {{1, 4, {2, 48, 32, 0}, 0.2f}, {{{21, 192}}}, 21},
        {{0, 6, {2, 24, 80, 11}, 0.2f}, {{{5, 144}}}, 5},
        {{1, 6, {2, 32, 32, 0}, 0.2f, 0, 8}, {{{5, 192}}}, 5},
        {{0, 4, {2, 32, 32, 20}, 0.2f, 0, 0, true}, {{{21, 128}}, {{1, 4}, Format::f32, true}}, 21},
        {{0, 4, {4, 16, 16, 0}, 0.3f, 3, 4, true}, {{{2, 64}}, {{1, 4}, Format::f32, true}}, 2},
        // values inside keys; one KV head of them is multi-head latent attention
        {{0, 4, {2, 48, 20, 0, true}, 0.2f}, {{{21, 192}}}, 21},
        {{1, 20, {1, 72, 64, 9, true}, 0.1f, 5}, {{{3, 1440}}}, 3},
        // over the batch itself; with a full mask the 301 tokens of a sequence are two chunks
        {{-1, 6, {2, 24, 40, 9}, 0.2f, 0, 8, false, Source::batch},
         {{{21, 144}}, {{21, 48}}, {{21, 80}}},
         21},
        {{-1, 2, {1, 16, 32, 0}, 0.3f, 0, 0, false, Source::batch, Mask::full},
         {{{600, 32}}, {{600, 16}}, {{600, 32}}},
         600},
        {{-1, 20, {1, 48, 16, 0}, 0.2f, 3, 0, true, Source::batch, Mask::full},
         {{{5, 960}}, {{5, 48}}, {{5, 16}}, {{1, 20}, Format::f32, true}},
         5},
        {{1, 4, {2, 16, 16, 0}, 0.25f, 0, 0, false, Source::pages, Mask::full}, {{{21, 64}}}, 21},
        // windows that are blocks, one of them inside a chunk
        {{0, 4, {2, 16, 16, 9, false, true}, 0.25f}, {{{21, 64}}}, 21},
        {{0, 4, {2, 32, 32, 300, false, true}, 0.25f}, {{{7, 128}}}, 7},
        {{0, 4, {2, 64, 64, 0}, 0.1f, 0, 0, true, Source::pages, Mask::causal, true},
         {{{21, 256}}, {{1, 128}, Format::f32, true}, {{1, 4}, Format::f32, true}},
         21},
    };
  }
};

}  // namespace chaski
