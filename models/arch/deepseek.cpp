// DeepSeek MoE 16B of 2024 (in GGUF files: deepseek): Llama's layers, the first of them dense. The
// others choose experts by a soft-max, and have a shared expert.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class DeepSeek : public Experts {
 public:
  DeepSeek() { names.shared = "mlp.shared_experts"; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    expert_keys(k, {"n_routed_experts"});
    expert_width_key(k);
    router_keys(k, kSoftMax);
    for (const char* key : {"expert_group_count", "expert_group_used_count"}) k[key].not_in_hf();
    // The authors' code does not read this one.
    k["expert_weights_scale"].not_in_hf();
    k.hf_expects({"moe_layer_freq"}, {int64_t{1}});
    k.hf_expects({"scoring_func"}, {"softmax"});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"attention_bias"}, {false});
  }
};

}  // namespace

extern const Architecture kDeepSeek;
const Architecture kDeepSeek{"deepseek", {"DeepseekForCausalLM"}, make_model<DeepSeek>};

}  // namespace chaski
