// Arcee (AFM): Llama with an ungated feed-forward whose activation is relu squared (relu2).
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Arcee : public Decoder {
  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    PlainWeights ffn;
  };
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    activation_key(k, "hidden_act", "relu2");
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      attention_slots(s, l.attn, Bias::none, {});
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.up_proj");
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.down_proj");
    }
    end_slots(s);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      x = g.add(x, attention(g, rms_norm(g, x, l.attn_norm), l.attn, int(i)));
      x = g.add(x, plain(g, rms_norm(g, x, l.ffn_norm), l.ffn));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kArcee;
const Architecture kArcee{"arcee", {"ArceeForCausalLM"}, make_model<Arcee>};

}  // namespace chaski
