// EXAONE 4: norms of each head's queries and keys; the other norms come after attention and
// feed-forward, not before. In models with a window, three of four layers have it, and the fourth
// has no positions.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Exaone4 : public Decoder {
  struct Layer {
    AttentionWeights attn;
    Linear attn_norm, ffn_norm;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    window_key(k);
    k["sliding_window"].hf_null_is(int64_t{0}).hf_otherwise(int64_t{4096});
    window_pattern_key(k, 4);
    k["window_layers"].when([this] { return window > 0; });
    if (window == 0) k.hf_expects_each("layer_types", "full_attention");
    k.hf_expects({"hidden_act"}, {"silu"});
  }

  bool turns(int layer) const override { return window == 0 || has_window(layer); }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      attention_slots(s, l.attn, Bias::none, halves());
      head_norm_slots(s, l.attn, halves());
      s.add(l.attn_norm, "post_attention_norm", 1, dim).in_hf("post_attention_layernorm");
      gated_slots(s, l.ffn);
      s.add(l.ffn_norm, "post_ffw_norm", 1, dim).in_hf("post_feedforward_layernorm");
    }
    end_slots(s);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      x = g.add(x, rms_norm(g, attention(g, x, l.attn, int(i)), l.attn_norm));
      x = g.add(x, rms_norm(g, gated(g, x, l.ffn), l.ffn_norm));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kExaone4;
const Architecture kExaone4{"exaone4", {"Exaone4ForCausalLM"}, make_model<Exaone4>};

}  // namespace chaski
