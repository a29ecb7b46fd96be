// StarCoder2: layer norm, rotary positions, grouped-query attention, gelu feed-forward without a
// gate, biases everywhere.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class StarCoder2 : public Gpt {
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
    s.hf_prefix = "model.";
    embedding_slots(s, "embed_tokens");
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      norm_slot(s, l.attn_norm, "attn_norm", "input_layernorm", Bias::always);
      attention_slots(s, l.attn, Bias::always, halves()).with(Bias::always);
      norm_slot(s, l.ffn_norm, "ffn_norm", "post_attention_layernorm", Bias::always);
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.c_fc").with(Bias::always);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.c_proj").with(Bias::always);
    }
    end_slots(s, "norm", Bias::always);
  }
};

}  // namespace

extern const Architecture kStarCoder2;
const Architecture kStarCoder2{"starcoder2", {"Starcoder2ForCausalLM"}, make_model<StarCoder2>};

}  // namespace chaski
