// Phi 1, 1.5 and 2: attention and gelu feed-forward parallel after one layer norm, rotary positions
// on a part of each head, biases everywhere, also on the logits.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Phi2 : public Decoder {
  struct Layer {
    Linear norm;
    AttentionWeights attn;
    PlainWeights ffn;
  };
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    size_keys(k);
    partial_rope_keys(k, 0.5);
    layer_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_eps");
    k.hf_expects({"hidden_act"}, {"gelu_new", "gelu_pytorch_tanh"});
    k.hf_expects({"qk_layernorm"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.norm, "attn_norm", 1, dim).in_hf("input_layernorm").with(Bias::always);
      attention_slots(s, l.attn, Bias::always, halves())
          .in_hf("self_attn.dense")
          .with(Bias::always);
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.fc1").with(Bias::always);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.fc2").with(Bias::always);
    }
    s.after_layers();
    rope_freqs_slot(s);
    s.add(output_norm, "output_norm", 1, dim).in_hf("final_layernorm").with(Bias::always);
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).with(Bias::always);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId n = layer_norm(g, x, l.norm);
      x = g.add(x, attention(g, n, l.attn, int(i)));
      x = g.add(x, plain(g, n, l.ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kPhi2;
const Architecture kPhi2{"phi2", {"PhiForCausalLM"}, make_model<Phi2>};

}  // namespace chaski
