// Nemotron 3 and 4, Minitron: layer norms stored as weight - 1 in Hugging Face files, rotary
// positions on a part of each head, grouped-query attention, an ungated relu2 feed-forward.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class Nemotron : public Gpt {
  void keys(Keys& k) override {
    size_keys(k);
    partial_rope_keys(k, 0.5);
    layer_norm_key(k);
    k["norm_epsilon"].in_hf("norm_eps");
    activation_key(k, "hidden_act", "relu2");
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"mlp_bias"}, {false});
  }

  void tensors(Slots& s) override {
    s.hf_prefix = "model.";
    embedding_slots(s, "embed_tokens");
    const auto norm = [&](Linear& member, const char* name, const char* hf) {
      s.add(member, name, 1, dim).in_hf(hf).less_one_in_hf().with(Bias::always);
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      norm(l.attn_norm, "attn_norm", "input_layernorm");
      attention_slots(s, l.attn, Bias::none, halves());
      norm(l.ffn_norm, "ffn_norm", "post_attention_layernorm");
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.up_proj");
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.down_proj");
    }
    end_slots(s, "norm", Bias::always).less_one_in_hf();
  }
};

}  // namespace

extern const Architecture kNemotron;
const Architecture kNemotron{"nemotron", {"NemotronForCausalLM"}, make_model<Nemotron>};

}  // namespace chaski
