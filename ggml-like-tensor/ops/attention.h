// Scaled dot-product attention of each token over its sequence's pages, positions 0..its own,
// causal by construction; `window` > 0: only the last `window` of them; `soft_cap` > 0: scores
// become cap * tanh(score / cap); `max_bias` > 0: then a score loses its head's slope() for every
// position it looks back (ALiBi, Press et al. 2022); `sinks`: a head's weights are divided by their
// sum and e^sink, as if it saw one more position, of value 0 (Xiao et al. 2024).
//   in 0 q (tokens, heads * head_dim); in 1 sinks (1, heads) if `sinks` -> out 0 (tokens, heads *
//   head_dim) and / or acts
// Keys and values are those of kv_write, as the pages hold them.
#pragma once
#include <bit>

#include "ggml-like-tensor/ops/hadamard.h"
#include "ggml-like-tensor/ops/kv_write.h"
#include "quant/half.h"

namespace chaski {

struct Attention {
  static constexpr const char* kName = "attention";
  int layer = 0, heads = 1, kv_heads = 1, head_dim = 0;
  float scale = 1;
  int window = 0;
  float soft_cap = 0, max_bias = 0;
  bool sinks = false;

  // Powers of one number for the first 2^n heads; those that are left stand between them.
  [[gnu::always_inline]] float slope(int head) const {
    const int n = int(std::bit_floor(unsigned(heads)));
    const double step = head < n ? head + 1 : head - n + 0.5;
    return float(__builtin_exp2(-double(max_bias) * step / n));
  }
  int64_t first_position(int64_t p) const { return window > 0 && p >= window ? p - window + 1 : 0; }

  bool leaves_acts() const { return head_dim % 32 == 0; }
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    CHECK(in[0].cols == int64_t(heads) * head_dim && heads % kv_heads == 0,
          "query heads share key heads evenly");
    return {in[0]};
  }
  Cost cost(const OpArgs& a) const {
    const KvLayout& l = a.batch->kv.layout;
    Cost c;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      const int64_t p = a.batch->positions[t], seen = p + 1 - first_position(p);
      c.flops += 4.0 * double(seen) * heads * head_dim;
      const bool last = t + 1 == a.in[0].shape.rows || a.batch->tables[t + 1] != a.batch->tables[t];
      if (last)
        c.bytes += double(seen) * double(l.heads) * double(l.k_bytes() + l.v_bytes()) / kPage;
    }
    if (info(l.format).block > 1) c.integer = c.flops / 2;  // the scores; values are weighed in f32
    return c;
  }

  // Key and value of one position as floats.
  void load(const KvView& kv, int32_t page, int kv_head, int slot, std::vector<float>& k,
            std::vector<float>& v) const {
    const KvLayout& l = kv.layout;
    k.resize(l.k_cols()), v.resize(l.v_cols());
    decode_row(l.format, kv.keys(layer, kv_head, page), slot, l.k_cols(), k.data());
    const std::byte* vt = kv.values(layer, kv_head, page);
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

  void reference(const OpArgs& a) const {
    std::vector<float> k, v;
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t) {
      std::vector<float> row(a.in[0].shape.cols);
      for (int h = 0; h < heads; ++h) {
        std::vector<float> q(a.in[0].row(t) + h * head_dim, a.in[0].row(t) + (h + 1) * head_dim);
        KvFormats::with(a.batch->kv.layout.format, [&]<class F>(F) {
          if (PageOf<F>::kRotated) hadamard(q.data(), head_dim);
        });
        const int64_t last = a.batch->positions[t], first = first_position(last);
        std::vector<double> score, sum(head_dim);
        std::vector<std::vector<float>> values;
        double most = -INFINITY, total = 0;
        for (int64_t p = first; p <= last; ++p) {
          load(a.batch->kv, a.batch->tables[t][p / kPage], h / (heads / kv_heads), int(p % kPage),
               k, v);
          double s = 0;
          for (int c = 0; c < head_dim; ++c) s += double(q[c]) * k[c];
          s *= scale;
          if (soft_cap > 0) s = soft_cap * std::tanh(s / soft_cap);
          if (max_bias > 0) s += double(slope(h)) * double(p - last);
          score.push_back(s), values.push_back(v), most = std::max(most, s);
        }
        if (sinks) {
          most = std::max(most, double(a.in[1].floats()[h]));
          total = std::exp(a.in[1].floats()[h] - most);
        }
        for (size_t i = 0; i < score.size(); ++i) {
          const double weight = std::exp(score[i] - most);
          total += weight;
          for (int c = 0; c < head_dim; ++c) sum[c] += weight * values[i][c];
        }
        for (int c = 0; c < head_dim; ++c) row[h * head_dim + c] = float(sum[c] / total);
      }
      if (a.out[0].data) std::copy(row.begin(), row.end(), a.out[0].out_row(t));
      if (a.acts.data) QuantizeActs::row(row.data(), a.acts, t);
    }
  }
  // tokens > 1: the positions of the examples' batch reach over several pages and chunks, see the
  // test.
  static std::vector<Example<Attention>> examples() {
    return {
        {{0, 4, 2, 16, 0.25f, 0, 0}, {{{1, 64}}}, 1},
        {{1, 4, 2, 16, 0.25f, 0, 0}, {{{21, 64}}}, 21},
        {{0, 4, 2, 16, 0.25f, 9, 0}, {{{21, 64}}}, 21},
        {{0, 4, 2, 16, 0.25f, 300, 5.0f}, {{{7, 64}}}, 7},
        {{0, 2, 2, 16, 0.25f, 0, 30.0f}, {{{3, 32}}}, 3},
        {{1, 20, 1, 48, 0.25f, 0, 0}, {{{3, 960}}}, 3},
        {{0, 3, 1, 96, 0.1f, 0, 0}, {{{2, 288}}}, 2},
        {{1, 6, 2, 32, 0.2f, 0, 0, 8}, {{{5, 192}}}, 5},
        {{0, 4, 2, 32, 0.2f, 20, 0, 0, true}, {{{21, 128}}, {{1, 4}, Format::f32, true}}, 21},
        {{0, 4, 4, 16, 0.3f, 0, 3, 4, true}, {{{2, 64}}, {{1, 4}, Format::f32, true}}, 2},
    };
  }
};

}  // namespace chaski
