// GLM 4 of April 2025: norms on both sides of attention and feed-forward, rotary positions on half
// of each head, gate and up in one tensor. In all files q and k are interleaved.
#include "models/decoder.h"

namespace chaski {

namespace {

class Glm4 : public Decoder {
  struct Layer {
    Linear attn_norm, attn_outer_norm, ffn_norm, ffn_outer_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    size_keys(k);
    partial_rope_keys(k, 0.5);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1.5625e-7);
    k.hf_expects({"hidden_act"}, {"silu"});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      attention_slots(s, l.attn, Bias::maybe, {}, {});
      s.add(l.attn_outer_norm, "post_attention_norm", 1, dim).in_hf("post_self_attn_layernorm");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      gate_up_slots(s, l.ffn);
      s.add(l.ffn_outer_norm, "post_ffw_norm", 1, dim).in_hf("post_mlp_layernorm");
    }
    end_slots(s);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId mixed = attention(g, rms_norm(g, x, l.attn_norm), l.attn, int(i));
      x = g.add(x, rms_norm(g, mixed, l.attn_outer_norm));
      const ValueId made = gated(g, rms_norm(g, x, l.ffn_norm), l.ffn);
      x = g.add(x, rms_norm(g, made, l.ffn_outer_norm));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kGlm4;
const Architecture kGlm4{"glm4", {"Glm4ForCausalLM"}, make_model<Glm4>};

}  // namespace chaski
