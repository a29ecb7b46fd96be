// Mixtral: Mistral whose layers all have experts. Its GGUF files and the names of its tensors are
// in llama.cpp.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Mixtral : public Experts {
  void keys(Keys& k) override {
    Llama::keys(k);
    k["sliding_window"].in_hf("sliding_window");
    k["rope_theta"].hf_otherwise(1e6);
    k["norm_epsilon"].hf_otherwise(1e-5);
    expert_keys(k, {"num_local_experts"});
  }
};

}  // namespace

extern const Architecture kMixtral;
const Architecture kMixtral{"llama", {"MixtralForCausalLM"}, make_model<Mixtral>};

}  // namespace chaski
