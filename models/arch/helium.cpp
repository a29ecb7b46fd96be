// Helium 1: Llama with q and k interleaved in Hugging Face files.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Helium : public Llama {
 public:
  Helium() { half_split_in_hf = false; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].hf_otherwise(100000.0);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-8);
    k.hf_expects({"hidden_act"}, {"silu"});
  }
};

}  // namespace

extern const Architecture kHelium;
const Architecture kHelium{"helium", {"HeliumForCausalLM"}, make_model<Helium>};

}  // namespace chaski
