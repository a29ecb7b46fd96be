// StableLM 3B and StableLM 2: layer norm, rotary positions on a quarter of each head, gated silu
// feed-forward. With `parallel`, attention and feed-forward read the output of the same norm.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class StableLm : public Decoder {
  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
  bool parallel = false;

  void keys(Keys& k) override {
    size_keys(k);
    partial_rope_keys(k, 0.25);
    layer_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_eps");
    k.flag(parallel, "use_parallel_residual").in_hf("use_parallel_residual").otherwise(false);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_tensors("use_qkv_bias", qkv_biases());
    k.hf_expects({"qk_layernorm"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm").with(Bias::always);
      attention_slots(s, l.attn, Bias::maybe, halves());
      if (!parallel)
        s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm").with(Bias::always);
      gated_slots(s, l.ffn);
    }
    end_slots(s, "norm", Bias::always);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId n = layer_norm(g, x, l.attn_norm);
      x = g.add(x, attention(g, n, l.attn, int(i)));
      x = g.add(x, gated(g, parallel ? n : layer_norm(g, x, l.ffn_norm), l.ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kStableLm;
const Architecture kStableLm{"stablelm", {"StableLmForCausalLM"}, make_model<StableLm>};

}  // namespace chaski
