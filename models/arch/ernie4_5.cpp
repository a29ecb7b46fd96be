// Ernie 4.5, dense: Llama with q and k interleaved in Hugging Face files too.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Ernie45 : public Llama {
 public:
  Ernie45() { half_split_in_hf = false; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].hf_otherwise(500000.0);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_bias"}, {false});
    k.hf_tied = true;
  }
};

}  // namespace

extern const Architecture kErnie45;
const Architecture kErnie45{
    "ernie4_5", {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"}, make_model<Ernie45>};

}  // namespace chaski
