// GLM 4 of April 2025, and GLM 4 9B of June 2024 and GLM Edge in the form of transformers
// (models/arch/chatglm.cpp reads the form of their authors). Rotary positions on half of each head,
// gate and up in one tensor and, since 2025, norms also after attention and feed-forward. q and k
// are interleaved in all files.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Glm4 : public Decoder {
 protected:
  bool outer_norms = true;

 private:
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
    k.hf_tensors("attention_bias", qkv_biases(), true);
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    const auto outer_norm = [&](Linear& norm, const char* name, const char* hf) {
      if (outer_norms) s.add(norm, name, 1, dim).in_hf(hf);
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      attention_slots(s, l.attn, Bias::maybe, {}, {});
      outer_norm(l.attn_outer_norm, "post_attention_norm", "post_self_attn_layernorm");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      gate_up_slots(s, l.ffn);
      outer_norm(l.ffn_outer_norm, "post_ffw_norm", "post_mlp_layernorm");
    }
    end_slots(s);
  }

  void build(Graph& g) const override {
    const auto add = [&](ValueId x, ValueId made, const Linear& norm) {
      return g.add(x, outer_norms ? rms_norm(g, made, norm) : made);
    };
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      x = add(x, attention(g, rms_norm(g, x, l.attn_norm), l.attn, int(i)), l.attn_outer_norm);
      x = add(x, gated(g, rms_norm(g, x, l.ffn_norm), l.ffn), l.ffn_outer_norm);
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

class Glm : public Glm4 {
 public:
  Glm() { outer_norms = false; }
};

}  // namespace

extern const Architecture kGlm4, kGlm;
const Architecture kGlm4{"glm4", {"Glm4ForCausalLM"}, make_model<Glm4>};
const Architecture kGlm{"glm", {"GlmForCausalLM"}, make_model<Glm>};

}  // namespace chaski
