// Qwen 1.5 and 2 with experts (A2.7B, 57B-A14B): Qwen 2 with experts in all layers, and a shared
// expert whose result is scaled for each token.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Qwen2Moe : public Experts {
 public:
  Qwen2Moe() {
    qkv_bias = Bias::always, half_split_in_gguf = true;
    shared_is_gated = true;
  }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    expert_keys(k);
    expert_width_key(k);
    shared_width_key(k);
    normalised_key(k, false, false);
    expect_experts_in_all_layers(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"qkv_bias"}, {true});
    k.hf_expects({"use_sliding_window"}, {false});
    k.hf_expects_each("layer_types", "full_attention");
  }
};

}  // namespace

extern const Architecture kQwen2Moe;
const Architecture kQwen2Moe{"qwen2moe", {"Qwen2MoeForCausalLM"}, make_model<Qwen2Moe>};

}  // namespace chaski
