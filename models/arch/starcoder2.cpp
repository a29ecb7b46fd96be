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
    layer_slots(s,
                {"layers.", "input_layernorm", nullptr, nullptr, "post_attention_layernorm",
                 "mlp.c_fc", "mlp.c_proj"},
                1, Bias::always);
    end_slots(s, "norm", Bias::always);
  }
};

}  // namespace

extern const Architecture kStarCoder2;
const Architecture kStarCoder2{"starcoder2", {"Starcoder2ForCausalLM"}, make_model<StarCoder2>};

}  // namespace chaski
