// GLM 4.5, 4.5 Air, 4.6 and 4.7: biases of q, k and v, rotary positions on half of each head, and
// perhaps norms of each head. The first layers are dense; the others choose experts by a sigmoid
// with a bias, and have a shared expert. GGUF files count the layers that predict further tokens,
// which are not read.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Glm4Moe : public Experts {
 public:
  Glm4Moe() {
    ffn_norm_name = "post_attention_norm";
    choice_bias = Bias::always, names.shared = "mlp.shared_experts";
  }

  void keys(Keys& k) override {
    size_keys(k);
    further_layers_key(k);
    partial_rope_keys(k, 0.5);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    expert_keys(k, {"n_routed_experts", "num_local_experts"});
    expert_width_key(k);
    router_keys(k, kSigmoid);
    k["leading_dense_block_count"].hf_otherwise(int64_t{1});
    k["expert_shared_count"].hf_otherwise(int64_t{1});
    k["expert_weights_norm"].hf_otherwise(true);
    k.flag(needs_norms, "head_norms")
        .not_in_gguf()
        .in_hf("use_qk_norm")
        .hf_otherwise(false)
        .optional();
    k.hf_tensors("use_qk_norm", {".q_norm.weight", ".k_norm.weight"});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_tensors("attention_bias", qkv_biases());
  }
  void attend_slots(Slots& s, int64_t i) override {
    AttentionWeights& w = layers[size_t(i)].attn;
    attention_slots(s, w, Bias::maybe, halves());
    for (Slots::Slot* norm : head_norm_slots(s, w, halves()))
      if (!needs_norms) norm->optional();
  }

 private:
  bool needs_norms = false;  // config.json says so; GGUF files say it by having them
};

}  // namespace

extern const Architecture kGlm4Moe;
const Architecture kGlm4Moe{"glm4moe", {"Glm4MoeForCausalLM"}, make_model<Glm4Moe>};

}  // namespace chaski
