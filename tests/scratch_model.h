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
    const Weight *norm, *in, *taps, *q, *k, *v, *out, *ffn_norm, *gate, *up, *down;
  };
  const Weight *embedding = nullptr, *norm = nullptr;
  Layer layers[kLayers] = {};

  ValueId attend(Graph& g, const Layer& l, ValueId x, const Paged& kv, int heads,
                 double theta) const {
    RopeSpec rope;
    rope.dim = 16, rope.theta = theta;
    const StateId state = g.state(kv);
    const ValueId q = g.rope(g.matmul(x, *l.q), heads, kv.k_dim, rope),
                  k = g.rope(g.matmul(x, *l.k), kv.heads, kv.k_dim, rope);
    g.kv_write(state, k, g.matmul(x, *l.v));
    return g.attention(q, state, 1 / std::sqrt(float(kv.k_dim)));
  }
  void build(Graph& g) const override {
    ValueId x = g.get_rows(*embedding);
    for (int i = 0; i < kLayers; ++i) {
      const Layer& l = layers[i];
      const ValueId n = g.rms_norm(x, *l.norm, 1e-5f);
      const ValueId mixed = i == 0   ? attend(g, l, n, kWindow, kWindowHeads, 1e4)
                            : i == 2 ? attend(g, l, n, kFull, kFullHeads, 1e6)
                                     : g.short_conv(g.matmul(n, *l.in), *l.taps);
      x = g.add(x, g.matmul(mixed, *l.out));
      const ValueId m = g.rms_norm(x, *l.ffn_norm, 1e-5f);
      x = g.add(x, g.matmul(g.mul(g.silu(g.matmul(m, *l.gate)), g.matmul(m, *l.up)), *l.down));
    }
    g.set_result(g.matmul(g.rms_norm(g.take_outputs(x), *norm, 1e-5f), *embedding));
  }

  static std::vector<TensorSlot> tensors(Model& model) {
    auto& m = static_cast<ScratchModel&>(model);
    std::vector<TensorSlot> out{{"token_embd", kVocab, kWidth, &m.embedding}};
    for (int i = 0; i < kLayers; ++i) {
      Layer& l = m.layers[i];
      const std::string p = fmt::format("layer.{}.", i);
      out.push_back({p + "attn_norm", 1, kWidth, &l.norm});
      const Paged* kv = i == 0 ? &kWindow : i == 2 ? &kFull : nullptr;
      const int heads = i == 0 ? kWindowHeads : kFullHeads;
      if (kv) {
        out.push_back({p + "attn_q", heads * kv->k_dim, kWidth, &l.q});
        out.push_back({p + "attn_k", kv->heads * kv->k_dim, kWidth, &l.k});
        out.push_back({p + "attn_v", kv->heads * kv->v_dim, kWidth, &l.v});
        out.push_back({p + "attn_output", kWidth, heads * kv->v_dim, &l.out});
      } else {
        out.push_back({p + "conv_in", kWidth, kWidth, &l.in});
        out.push_back({p + "conv", 1, kTaps * kWidth, &l.taps});
        out.push_back({p + "conv_out", kWidth, kWidth, &l.out});
      }
      out.push_back({p + "ffn_norm", 1, kWidth, &l.ffn_norm});
      out.push_back({p + "ffn_gate", kFfn, kWidth, &l.gate});
      out.push_back({p + "ffn_up", kFfn, kWidth, &l.up});
      out.push_back({p + "ffn_down", kWidth, kFfn, &l.down});
    }
    out.push_back({"output_norm", 1, kWidth, &m.norm});
    return out;
  }
  static std::unique_ptr<Model> make(const Hyper& hyper) {
    auto m = std::make_unique<ScratchModel>();
    m->hyper = hyper;
    return m;
  }
};

// Writes such a model, and makes its architecture known to this process.
inline std::string write_scratch_model(const std::string& path) {
  constexpr const char* kName = "scratch";
  bool known = false;
  for (const Architecture& a : architectures()) known |= std::string(a.name) == kName;
  if (!known) architectures().push_back({kName, ScratchModel::make, ScratchModel::tensors});

  ModelSource source;
  source.path = path, source.kind = "test";
  source.meta.set_str("general.architecture", kName);
  const std::pair<const char*, int64_t> numbers[] = {
      {"model.vocab_size", ScratchModel::kVocab},
      {"model.context_length", ScratchModel::kContext},
      {"model.embedding_length", ScratchModel::kWidth},
      {"model.block_count", ScratchModel::kLayers},
      {"model.feed_forward_length", ScratchModel::kFfn},
      {"model.head_count", ScratchModel::kWindowHeads}};
  for (const auto& [key, value] : numbers) source.meta.set_int(key, value);
  source.meta.set_float("model.norm_epsilon", 1e-5);
  ScratchModel model;
  for (const TensorSlot& slot : ScratchModel::tensors(model)) {
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
