// An architecture that exists in no file. Everything that can differ between layers differs: one
// layer has a window and one has full attention, with their own heads, widths, ropes and norms over
// heads; two have short convolutions and experts. It also has numbers and names that no other
// architecture has.
#pragma once
#include "models/architecture.h"
#include "quant/encode/random.h"
#include "tests/kit/support.h"

namespace chaski::test {

struct ScratchModel : Model {
  // The sizes that write_scratch_model() writes.
  static constexpr int kVocab = 300, kContext = 2600, kLayers = 4;
  static constexpr Paged kWindow{2, 16, 16, 20}, kFull{1, 48, 32, 0};

  struct Layer {
    Linear norm, in, taps, q, k, v, q_norm, k_norm, out, ffn_norm, router, gate, up, down;
  };
  int64_t width = 0, ffn = 0, taps = 0, chosen = 0;
  // by layer; a layer without heads is a convolution; without experts it has a plain feed-forward
  std::vector<int64_t> heads, shared, k_dims, v_dims, windows, experts;
  double near_theta = 0, far_theta = 0;  // of layers with a window, and of layers without
  float eps = 0;
  Linear embedding, norm;
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    k.integer(context, "context_length").in_hf("reach").range(1, 1 << 20);
    k.integer(vocab, "vocab_size").in_hf("pieces").range(2, 1 << 20);
    k.integer(n_layers, "block_count").in_hf("depth").range(1, 64);
    k.integer(width, "width").in_gguf("embedding_length").in_hf("width").range(2, 1 << 16);
    k.integer(ffn, "ffn").in_gguf("feed_forward_length").in_hf("mlp.width").range(16, 1 << 16);
    k.integers(heads, "heads", n_layers).in_hf("heads").range(0, 64);
    k.integers(shared, "kv_heads", n_layers).in_hf("kv_heads").range(0, 64);
    k.integers(k_dims, "key_lengths", n_layers).in_hf("head.keys").range(0, 512);
    k.integers(v_dims, "value_lengths", n_layers).in_hf("head.values").range(0, 512);
    k.integers(windows, "windows", n_layers).in_hf("windows").range(0, 1 << 20);
    k.integers(experts, "experts", n_layers).in_hf("mlp.experts").range(0, 64);
    k.integer(chosen, "experts_chosen").in_hf("mlp.chosen").range(1, 64).otherwise(2);
    k.integer(taps, "taps").in_hf("taps").range(2, 16);
    k.number(near_theta, "theta.near").in_hf("theta.near").positive();
    k.number(far_theta, "theta.far").in_hf("theta.far").positive().otherwise([this] {
      return 100 * near_theta;
    });
    k.number(eps, "eps").in_hf("eps").positive().otherwise(1e-5);
    k.hf_expects({"act"}, {"silu"});
  }
  void agree(const std::string& file) const override {
    for (size_t i = 0; i < heads.size(); ++i)
      if (experts[i] > 0 && chosen > experts[i])
        fail(Exit::bad_file, "{}: model.experts[{}] is {}, expected at least experts_chosen {}",
             file, i, experts[i], chosen);
  }
  Paged kept(int64_t i) const {
    const auto l = size_t(i);
    return {int(shared[l]), int(k_dims[l]), int(v_dims[l]), int(windows[l])};
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "net.";
    s.add(embedding, "token_embd", vocab, width).in_hf("pieces").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "blocks.");
      s.add(l.norm, "attn_norm", 1, width).in_hf("first_norm");
      heads[size_t(i)] > 0 ? attention_slots(s, l, i) : convolution_slots(s, l);
      s.add(l.ffn_norm, "ffn_norm", 1, width).in_hf("second_norm");
      const int64_t n = std::max<int64_t>(experts[size_t(i)], 1), rows = n * ffn;
      if (experts[size_t(i)] > 0) s.add(l.router, "router", n, width).in_hf("router");
      s.add(l.gate, "gate", rows, width).in_hf("gate_up", part(0, 2 * rows));
      s.add(l.up, "up", rows, width).in_hf("gate_up", part(rows, 2 * rows));
      s.add(l.down, "down", n * width, ffn).in_hf("down");
    }
    s.after_layers();
    s.add(norm, "output_norm", 1, width).in_hf("last_norm");
  }
  void attention_slots(Slots& s, Layer& l, int64_t i) {
    const Paged kv = kept(i);
    const int64_t n = heads[size_t(i)], k = kv.heads * kv.k_dim, v = kv.heads * kv.v_dim;
    s.add(l.q, "attn_q", n * kv.k_dim, width).in_hf("q", half_split(kv.k_dim, kTurned));
    s.add(l.k, "attn_k", k, width)
        .in_hf("k", half_split(kv.k_dim, kTurned))
        .in_gguf("attn_kv", part(0, k + v));
    s.add(l.v, "attn_v", v, width).in_hf("v").in_gguf("attn_kv", part(k, k + v));
    s.add(l.q_norm, "q_norm", 1, kv.k_dim).in_hf("q_norm", half_split(kv.k_dim, kTurned));
    s.add(l.k_norm, "k_norm", 1, kv.k_dim).in_hf("k_norm", half_split(kv.k_dim, kTurned));
    s.add(l.out, "attn_output", width, n * kv.v_dim).in_hf("out");
  }
  void convolution_slots(Slots& s, Layer& l) {
    s.add(l.in, "conv_in", width, width).in_hf("conv.in", kTransposed);
    s.add(l.taps, "conv", 1, taps * width).in_hf("conv.taps");
    s.add(l.out, "conv_out", width, width).in_hf("conv.out");
  }

  ValueId attend(Graph& g, const Layer& l, ValueId x, const Paged& kv, int n) const {
    RopeSpec rope;
    rope.dim = kTurned, rope.theta = kv.window > 0 ? near_theta : far_theta;
    const auto turned = [&](const Linear& w, const Linear& norm, int of) {
      return g.rope(g.rms_norm(g.matmul(x, *w.weight), *norm.weight, eps, of), of, kv.k_dim, rope);
    };
    const StateId state = g.state(kv);
    const ValueId q = turned(l.q, l.q_norm, n);
    g.kv_write(state, turned(l.k, l.k_norm, kv.heads), g.matmul(x, *l.v.weight));
    return g.attention(q, state, 1 / std::sqrt(float(kv.k_dim)));
  }
  ValueId feed(Graph& g, const Layer& l, ValueId x) const {
    return g.matmul(g.mul(g.silu(g.matmul(x, *l.gate.weight)), g.matmul(x, *l.up.weight)),
                    *l.down.weight);
  }
  ValueId consult(Graph& g, const Layer& l, ValueId x, int n) const {
    const Graph::Chosen c = g.top_k(g.matmul(x, *l.router.weight), int(chosen));
    const auto expert = [&](ValueId of, const Linear& w) {
      return g.expert_matmul(of, *w.weight, n, c.experts);
    };
    const ValueId inner = g.mul(g.silu(expert(x, l.gate)), expert(x, l.up));
    return g.mix(expert(inner, l.down), g.soft_max(c.values, 1));
  }
  void build(Graph& g) const override {
    ValueId x = g.get_rows(*embedding.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId n = g.rms_norm(x, *l.norm.weight, eps);
      const ValueId mixed = heads[i] > 0 ? attend(g, l, n, kept(int64_t(i)), int(heads[i]))
                                         : g.short_conv(g.matmul(n, *l.in.weight), *l.taps.weight);
      x = g.add(x, g.matmul(mixed, *l.out.weight));
      const ValueId m = g.rms_norm(x, *l.ffn_norm.weight, eps);
      x = g.add(x, experts[i] > 0 ? consult(g, l, m, int(experts[i])) : feed(g, l, m));
    }
    x = g.rms_norm(g.take_outputs(x), *norm.weight, eps);
    g.set_result(g.matmul(x, *embedding.weight), x);
  }

  static constexpr int kTurned = 16;  // channels of a head that rope rotates
};

constexpr const char* kScratch = "scratch";

// Registers the architecture in this process.
inline void register_scratch_model() {
  if (!find_architecture(kScratch))
    architectures().push_back({kScratch, {"ScratchForCausalLM"}, make_model<ScratchModel>});
}

// Writes such a model with all matrices in one format.
inline std::string write_scratch_model(const std::string& path, Format matrices = Format::q8) {
  register_scratch_model();
  ModelSource source;
  source.path = path, source.kind = "test";
  Metadata& meta = source.meta;
  meta.set_str("general.architecture", kScratch);
  meta.set_int("model.vocab_size", ScratchModel::kVocab);
  meta.set_int("model.context_length", ScratchModel::kContext);
  meta.set_int("model.block_count", ScratchModel::kLayers);
  meta.set_int("model.width", 64), meta.set_int("model.ffn", 96), meta.set_int("model.taps", 3);
  const auto by_layer = [&](const char* name, int64_t window, int64_t full) {
    meta.set_ints(name, {window, 0, full, 0});
  };
  const Paged &near = ScratchModel::kWindow, &far = ScratchModel::kFull;
  by_layer("model.heads", 4, 2), by_layer("model.kv_heads", near.heads, far.heads);
  by_layer("model.key_lengths", near.k_dim, far.k_dim);
  by_layer("model.value_lengths", near.v_dim, far.v_dim);
  by_layer("model.windows", near.window, far.window);
  meta.set_ints("model.experts", {0, 4, 0, 2});
  meta.set_float("model.theta.near", 1e4);
  complete_model(meta);
  for (const TensorSlot& slot : tensors_of(*model_of(meta))) {
    if (slot.optional) continue;
    const TensorInfo info{slot.name, slot.rows == 1 ? Format::f32 : matrices, slot.rows, slot.cols};
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
