// Jais 2: GPT-2's layers with rotary positions and an activation of relu squared (relu2). q and k
// are half-split (NeoX's rotary order) in GGUF files too.
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
    layer_slots(s,
                {"layers.", "input_layernorm", nullptr, nullptr, "post_attention_layernorm",
                 "mlp.up_proj", "mlp.down_proj"},
                1, Bias::always);
    end_slots(s, "norm", Bias::always);
  }
};

}  // namespace

extern const Architecture kJais2;
const Architecture kJais2{"jais2", {"Jais2ForCausalLM"}, make_model<Jais2>};

}  // namespace chaski
