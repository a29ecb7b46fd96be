// Qwen 3 with experts (30B-A3B, 235B-A22B and Coder): Qwen 3 whose layers all have experts.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Qwen3Moe : public Experts {
 public:
  Qwen3Moe() { head_norms = half_split_in_gguf = true; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    expert_keys(k, {"num_experts", "num_local_experts"});
    expert_width_key(k);
    normalised_key(k, false, true);
    expect_experts_in_all_layers(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_sliding_window"}, {false});
    k.hf_tensors("attention_bias", attention_biases());
  }
};

}  // namespace

extern const Architecture kQwen3Moe;
const Architecture kQwen3Moe{"qwen3moe", {"Qwen3MoeForCausalLM"}, make_model<Qwen3Moe>};

}  // namespace chaski
