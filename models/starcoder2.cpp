// StarCoder2: layer norm, rotary positions, grouped-query attention, gelu feed-forward without a
// gate, biases everywhere.
#include "models/decoder.h"

namespace chaski {

namespace {

class StarCoder2 : public Decoder {
  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    PlainWeights ffn;
  };
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    layer_norm_key(k);
    k["norm_epsilon"].in_hf("norm_epsilon");
    window_key(k);
    k.hf_expects({"hidden_act"}, {"gelu_pytorch_tanh", "gelu_new"});
    k.hf_expects({"use_bias"}, {true});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "model.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("embed_tokens").as(Role::token_table);
    const auto norm = [&](Linear& member, const char* name, const char* hf) {
      s.add(member, name, 1, dim).in_hf(hf).with(Bias::always);
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      norm(l.attn_norm, "attn_norm", "input_layernorm");
      attention_slots(s, l.attn, Bias::always, halves()).with(Bias::always);
      norm(l.ffn_norm, "ffn_norm", "post_attention_layernorm");
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.c_fc").with(Bias::always);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.c_proj").with(Bias::always);
    }
    s.behind_layers();
    norm(output_norm, "output_norm", "norm");
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (const Layer& l : layers) {
      x = g.add(x, attention(g, layer_norm(g, x, l.attn_norm), l.attn));
      x = g.add(x, gelu(g, layer_norm(g, x, l.ffn_norm), l.ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kStarCoder2;
const Architecture kStarCoder2{"starcoder2", {"Starcoder2ForCausalLM"}, make_model<StarCoder2>};

}  // namespace chaski
