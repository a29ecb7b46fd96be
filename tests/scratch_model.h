// An architecture that no file has, in which everything that states can differ in differs: a layer
// with a window, two with short convolutions, and one with full attention, other heads, keys wider
// than values and a rope of its own.
#pragma once
#include "models/architecture.h"
#include "quant/random.h"
#include "tests/support.h"

namespace chaski::test {

struct ScratchModel : Model {
  static constexpr int kWidth = 64, kFfn = 96, kTaps = 3, kVocab = 300, kLayers = 4;
  static constexpr int kContext = 2600;
  static constexpr Paged kWindow{2, 16, 16, 20}, kFull{1, 48, 32, 0};
  static constexpr int kWindowHeads = 4, kFullHeads = 2;
  struct Layer {
    Linear norm, in, taps, q, k, v, out, ffn_norm, gate, up, down;
  };
  Linear embedding, norm;
  Layer layers[kLayers];

  void keys(Keys& k) override {
    k.integer(context, "context_length").range(1, 1 << 20);
    k.integer(vocab, "vocab_size").range(kVocab, kVocab);
    k.integer(n_layers, "block_count").range(kLayers, kLayers);
  }
  void tensors(Slots& s) override {
    s.add(embedding, "token_embd", kVocab, kWidth).as(Role::token_table);
    for (int i = 0; i < kLayers; ++i) {
      Layer& l = layers[i];
      s.layer(i, "layers.");
      s.add(l.norm, "attn_norm", 1, kWidth);
      if (i % 2 == 0) {
        const Paged& kv = i == 0 ? kWindow : kFull;
        const int heads = i == 0 ? kWindowHeads : kFullHeads;
        s.add(l.q, "attn_q", heads * kv.k_dim, kWidth);
        s.add(l.k, "attn_k", kv.heads * kv.k_dim, kWidth);
        s.add(l.v, "attn_v", kv.heads * kv.v_dim, kWidth);
        s.add(l.out, "attn_output", kWidth, heads * kv.v_dim);
      } else {
        s.add(l.in, "conv_in", kWidth, kWidth);
        s.add(l.taps, "conv", 1, kTaps * kWidth);
        s.add(l.out, "conv_out", kWidth, kWidth);
      }
      s.add(l.ffn_norm, "ffn_norm", 1, kWidth);
      s.add(l.gate, "ffn_gate", kFfn, kWidth);
      s.add(l.up, "ffn_up", kFfn, kWidth);
      s.add(l.down, "ffn_down", kWidth, kFfn);
    }
    s.behind_layers();
    s.add(norm, "output_norm", 1, kWidth);
  }

  ValueId attend(Graph& g, const Layer& l, ValueId x, const Paged& kv, int heads,
                 double theta) const {
    RopeSpec rope;
    rope.dim = 16, rope.theta = theta;
    const StateId state = g.state(kv);
    const ValueId q = g.rope(g.matmul(x, *l.q.weight), heads, kv.k_dim, rope),
                  k = g.rope(g.matmul(x, *l.k.weight), kv.heads, kv.k_dim, rope);
    g.kv_write(state, k, g.matmul(x, *l.v.weight));
    return g.attention(q, state, 1 / std::sqrt(float(kv.k_dim)));
  }
  void build(Graph& g) const override {
    ValueId x = g.get_rows(*embedding.weight);
    for (int i = 0; i < kLayers; ++i) {
      const Layer& l = layers[i];
      const ValueId n = g.rms_norm(x, *l.norm.weight, 1e-5f);
      const ValueId mixed = i == 0   ? attend(g, l, n, kWindow, kWindowHeads, 1e4)
                            : i == 2 ? attend(g, l, n, kFull, kFullHeads, 1e6)
                                     : g.short_conv(g.matmul(n, *l.in.weight), *l.taps.weight);
      x = g.add(x, g.matmul(mixed, *l.out.weight));
      const ValueId m = g.rms_norm(x, *l.ffn_norm.weight, 1e-5f);
      x = g.add(x, g.matmul(g.mul(g.silu(g.matmul(m, *l.gate.weight)), g.matmul(m, *l.up.weight)),
                            *l.down.weight));
    }
    g.set_result(g.matmul(g.rms_norm(g.take_outputs(x), *norm.weight, 1e-5f), *embedding.weight));
  }
};

// Writes such a model, and makes its architecture known to this process.
inline std::string write_scratch_model(const std::string& path) {
  constexpr const char* kName = "scratch";
  bool known = false;
  for (const Architecture& a : architectures()) known |= std::string(a.name) == kName;
  if (!known) architectures().push_back({kName, {}, make_model<ScratchModel>});

  ModelSource source;
  source.path = path, source.kind = "test";
  source.meta.set_str("general.architecture", kName);
  source.meta.set_int("model.vocab_size", ScratchModel::kVocab);
  source.meta.set_int("model.context_length", ScratchModel::kContext);
  source.meta.set_int("model.block_count", ScratchModel::kLayers);
  ScratchModel model;
  for (const TensorSlot& slot : tensors_of(model)) {
    const TensorInfo info{slot.name, slot.rows == 1 ? Format::f32 : Format::q8, slot.rows,
                          slot.cols};
    source.tensors.push_back({info, [info](int64_t first, int64_t last, std::byte* to) {
                                const uint64_t seed = std::hash<std::string>()(info.name);
                                if (!info.tiled())
                                  return random_row(info.format, seed, 0.7f, info.cols, to);
                                const size_t bytes = strip_bytes(info.format, info.cols);
                                for (int64_t s = first; s < last; ++s, to += bytes)
                                  random_strip(info.format, seed + uint64_t(s), 0.3f, info.cols,
                                               to);
                              }});
  }
  write_quipu(path, source, 1);
  return path;
}

}  // namespace chaski::test
