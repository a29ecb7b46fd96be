// dots.llm1: Qwen 3's layers, the first of them dense. The others choose experts by a sigmoid with
// a bias, and have a shared expert.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Dots1 : public Experts {
 public:
  Dots1() {
    head_norms = half_split_in_gguf = true;
    choice_bias = Bias::always, names.shared = "mlp.shared_experts";
  }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    expert_keys(k, {"n_routed_experts", "num_local_experts"});
    expert_width_key(k);
    router_keys(k, kSigmoid);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects_each("layer_types", "full_attention");
    k.hf_tensors("attention_bias", attention_biases());
  }
};

}  // namespace

extern const Architecture kDots1;
const Architecture kDots1{"dots1", {"Dots1ForCausalLM"}, make_model<Dots1>};

}  // namespace chaski
