// Qwen 2 and 2.5, and MiMo: Llama with biases on q, k and v. q and k are half-split (NeoX's rotary
// order) in GGUF files too.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Qwen2 : public Llama {
 public:
  Qwen2() { qkv_bias = Bias::always, half_split_in_gguf = true; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_sliding_window"}, {false});
    k.hf_expects_each("layer_types", "full_attention");
  }
};

}  // namespace

extern const Architecture kQwen2;
const Architecture kQwen2{"qwen2", {"Qwen2ForCausalLM", "MiMoForCausalLM"}, make_model<Qwen2>};

}  // namespace chaski
