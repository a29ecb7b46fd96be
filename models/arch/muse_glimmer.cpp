// The text part of Muse Glimmer: four norms a layer, norms without weights of token rows and of
// each head's queries and keys, and a sigmoid gate on the result of attention. In each four layers,
// three have a window and rotary positions, and the last has neither. Norms in Hugging Face files
// store weight - 1, but not the last.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class MuseGlimmer : public Decoder {
  struct Layer {
    Linear attn_norm, attn_outer_norm, ffn_norm, ffn_outer_norm, gate;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
  float outer_eps = 0;
  float query_scale = 1;            // in GGUF files it is the weight of the norm of queries
  std::vector<float> layer_thetas;  // of config.json: 0 for each layer without rotary positions
  bool unlike_windows = false;      // these are not the layers without a window

  // Counted from the last layer, every fourth has neither window nor rotary positions.
  bool is_near(int64_t layer) const { return (n_layers - 1 - layer) % 4 != 0; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.number(outer_eps, "outer_norm_epsilon")
        .in_gguf_always(1e-8)
        .in_hf("post_norm_eps")
        .otherwise(1e-8)
        .positive();
    window_key(k);
    k["sliding_window"].hf_otherwise(int64_t{2048});
    window_pattern_key(k, 4);
    k["window_layers"].hf_otherwise([this] {
      std::vector<int64_t> near;
      for (int64_t i = 0; i < n_layers; ++i) near.push_back(is_near(i));
      return Given(near);
    });
    k.numbers(layer_thetas, "rope_layer_thetas", [this] { return n_layers; })
        .not_in_gguf()
        .in_hf("layer_rope_theta")
        .between(0, 1e12)
        .hf_otherwise([this] {
          std::vector<double> thetas;
          for (int64_t i = 0; i < n_layers; ++i) thetas.push_back(is_near(i) ? rope.theta : 0);
          return Given(thetas);
        })
        .optional();
    k.flag(unlike_windows, "rope_unlike_windows").in_gguf_always(0).not_in_hf().otherwise([this] {
      bool unlike = false;
      for (size_t i = 0; i < layer_thetas.size(); ++i)
        unlike |= (layer_thetas[i] != 0) != has_window(int(i));
      return Given(unlike);
    });
    k.number(query_scale, "query_scale")
        .not_in_gguf()
        .in_hf("qk_scale_factor")
        .hf_otherwise(3.87)
        .optional();
    k.number(logit_scale, "logit_scale")
        .in_hf("output_multiplier")
        .hf_otherwise(0.19611613513818404)
        .positive();
    k.number(logit_cap, "logit_soft_cap")
        .in_gguf("final_logit_softcapping")
        .in_hf("final_logit_softcapping")
        .hf_otherwise(20.0)
        .optional();
    k.hf_expects({"hidden_activation"}, {"silu"});
    k.hf_expects({"attention_bias"}, {false});
  }

  bool turns(int layer) const override {
    return layer_thetas.empty() ? has_window(layer) : layer_thetas[size_t(layer)] != 0;
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      const auto norm = [&](Linear& member, const char* name, const char* hf) {
        s.add(member, name, 1, dim).in_hf(hf).less_one_in_hf();
      };
      norm(l.attn_norm, "attn_norm", "input_layernorm");
      attention_slots(s, l.attn, Bias::none, {});
      s.add(l.attn.q_norm, "attn_q_norm", 1, head_dim).constant_in_hf(query_scale);
      s.add(l.attn.k_norm, "attn_k_norm", 1, head_dim).constant_in_hf(1);
      s.add(l.gate, "attn_gate", q_rows(), dim).in_hf("self_attn.gate_proj");
      norm(l.attn_outer_norm, "post_attention_norm", "post_attention_layernorm");
      norm(l.ffn_norm, "ffn_norm", "pre_feedforward_layernorm");
      gated_slots(s, l.ffn);
      norm(l.ffn_outer_norm, "post_ffw_norm", "post_feedforward_layernorm");
    }
    end_slots(s);
  }

  ValueId attend(Graph& g, ValueId n, const Layer& l, int layer) const {
    const ValueId q = g.rms_norm(linear(g, n, l.attn.q), *l.attn.q_norm.weight, eps, heads),
                  k = g.rms_norm(linear(g, n, l.attn.k), *l.attn.k_norm.weight, eps, kv_heads);
    const ValueId mixed = attention_of(g, q, k, linear(g, n, l.attn.v), layer);
    const ValueId open = g.activate(Activation::sigmoid, linear(g, n, l.gate));
    return linear(g, g.mul(open, mixed), l.attn.output);
  }

  void build(Graph& g) const override {
    const auto outer = [&](ValueId x, const Linear& w) {
      return g.rms_norm(x, *w.weight, outer_eps);
    };
    ValueId x = rms_norm(g, g.get_rows(*token_embd.weight));
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      x = g.add(x, outer(attend(g, rms_norm(g, x, l.attn_norm), l, int(i)), l.attn_outer_norm));
      x = g.add(x, outer(gated(g, rms_norm(g, x, l.ffn_norm), l.ffn), l.ffn_outer_norm));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kMuseGlimmer;
const Architecture kMuseGlimmer{"muse-glimmer",
                                {"MuseGlimmerForConditionalGeneration"},
                                make_model<MuseGlimmer>,
                                {"muse_glimmer_text"}};

}  // namespace chaski
