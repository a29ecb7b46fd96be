// XVERSE, dense (7B, 13B, 65B): Llama without grouped queries.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Xverse : public Llama {
 public:
  Xverse() { qkv_bias = Bias::none; }

 private:
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
  }
};

}  // namespace

extern const Architecture kXverse;
const Architecture kXverse{"xverse", {"XverseForCausalLM"}, make_model<Xverse>};

}  // namespace chaski
