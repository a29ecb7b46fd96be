// openPangu Embedded (1B, 7B): Llama with biases on all matrices of attention. q and k are
// half-split (NeoX's rotary order) in GGUF files too.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class PanguEmbedded : public Llama {
 public:
  PanguEmbedded() { qkv_bias = Bias::always, half_split_in_gguf = true; }

 private:
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"bias"}, {true});
  }
};

}  // namespace

extern const Architecture kPanguEmbedded;
const Architecture kPanguEmbedded{
    "pangu-embedded", {"PanguEmbeddedForCausalLM"}, make_model<PanguEmbedded>};

}  // namespace chaski
