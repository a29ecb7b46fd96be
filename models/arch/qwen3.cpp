// Qwen 3, dense: Llama with norms of each head's queries and keys. q and k are half-split (NeoX's
// rotary order) in GGUF files too.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Qwen3 : public Llama {
 public:
  Qwen3() { head_norms = half_split_in_gguf = true; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_sliding_window"}, {false});
    k.hf_expects_each("layer_types", "full_attention");
    k.hf_tensors("attention_bias", attention_biases());
  }
};

}  // namespace

extern const Architecture kQwen3;
const Architecture kQwen3{"qwen3", {"Qwen3ForCausalLM"}, make_model<Qwen3>};

}  // namespace chaski
