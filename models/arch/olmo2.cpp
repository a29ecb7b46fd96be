// OLMo 2: Llama with its norms after attention and feed-forward, and with norms over the whole of q
// and of k.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Olmo2 : public Decoder {
  struct Layer {
    AttentionWeights attn;
    Linear q_norm, k_norm, attn_norm, ffn_norm;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"attention_bias"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      attention_slots(s, l.attn, Bias::none, halves());
      s.add(l.q_norm, "attn_q_norm", 1, q_rows())
          .in_hf("self_attn.q_norm", halves())
          .in_gguf(halves());
      s.add(l.k_norm, "attn_k_norm", 1, kv_rows())
          .in_hf("self_attn.k_norm", halves())
          .in_gguf(halves());
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
      const ValueId q = rms_norm(g, linear(g, x, l.attn.q), l.q_norm),
                    k = rms_norm(g, linear(g, x, l.attn.k), l.k_norm), v = linear(g, x, l.attn.v);
      const ValueId mixed = linear(g, attention_of(g, q, k, v, int(i)), l.attn.output);
      x = g.add(x, rms_norm(g, mixed, l.attn_norm));
      x = g.add(x, rms_norm(g, gated(g, x, l.ffn), l.ffn_norm));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kOlmo2;
const Architecture kOlmo2{"olmo2", {"Olmo2ForCausalLM"}, make_model<Olmo2>};

}  // namespace chaski
