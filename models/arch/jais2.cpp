// Jais 2: GPT-2's layers with rotary positions and an activation of relu squared (relu2). q and k
// are half-split in GGUF files too.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class Jais2 : public Gpt {
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    layer_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_eps");
    activation_key(k, "hidden_act", "relu2");
    k.hf_expects({"attention_bias"}, {true});
    k.hf_expects({"mlp_bias"}, {true});
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
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.up_proj").with(Bias::always);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.down_proj").with(Bias::always);
    }
    end_slots(s, "norm", Bias::always);
  }
};

}  // namespace

extern const Architecture kJais2;
const Architecture kJais2{"jais2", {"Jais2ForCausalLM"}, make_model<Jais2>};

}  // namespace chaski
