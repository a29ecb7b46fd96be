// Seed-OSS: Llama with biases on q, k and v. q and k are half-split (NeoX's rotary order) in GGUF
// files too. GGUF files have another name for the norm of the feed-forward.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class SeedOss : public Llama {
 public:
  SeedOss() { half_split_in_gguf = true, ffn_norm_name = "post_attention_norm"; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_tensors("attention_bias", qkv_biases(), true);
    k.hf_tensors("attention_out_bias", {".o_proj.bias"});
    k.hf_tensors("mlp_bias", gated_biases());
  }
};

}  // namespace

extern const Architecture kSeedOss;
const Architecture kSeedOss{"seed_oss", {"SeedOssForCausalLM"}, make_model<SeedOss>};

}  // namespace chaski
