// OLMoE: Llama with norms over the whole of q and of k, and with experts in all layers.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Olmoe : public Experts {
 public:
  Olmoe() { whole_norms = half_split_in_gguf = true; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    expert_keys(k, {"num_experts", "num_local_experts"});
    normalised_key(k, false, false);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"clip_qkv"}, {});
    k.hf_tensors("attention_bias", attention_biases());
  }
};

}  // namespace

extern const Architecture kOlmoe;
const Architecture kOlmoe{"olmoe", {"OlmoeForCausalLM"}, make_model<Olmoe>};

}  // namespace chaski
