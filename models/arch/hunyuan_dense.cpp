// Hunyuan, dense (0.5B to 7B): Llama with norms of each head's queries and keys after the rotation.
// config.json has its theta as a base and a factor (alpha). q and k are half-split in GGUF files
// too.
#include "models/blocks/late_norms.h"

namespace chaski {

namespace {

class HunyuanDense : public LateNorms {
 public:
  HunyuanDense() {
    half_split_in_gguf = true;
    q_norm_name = "self_attn.query_layernorm", k_norm_name = "self_attn.key_layernorm";
  }

 private:
  void keys(Keys& k) override {
    size_keys(k);
    alpha_key(k);
    rope_keys(k);
    const auto from_base = [this](double theta) { return Given(stretched(theta)); };
    k["rope_theta"].converted_from_hf(from_base).hf_otherwise([=] { return from_base(10000); });
    // Hunyuan's "dynamic" is this constant factor; it does not depend on the length of the text.
    alpha_rope_words(k, {"dynamic"});
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
  }
};

}  // namespace

extern const Architecture kHunyuanDense;
const Architecture kHunyuanDense{
    "hunyuan-dense", {"HunYuanDenseV1ForCausalLM"}, make_model<HunyuanDense>};

}  // namespace chaski
