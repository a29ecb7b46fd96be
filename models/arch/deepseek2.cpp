// DeepSeek V2, V2 Lite, V3, V3.1 and R1, Moonlight, Kimi K2 and models built like them (in GGUF
// files: deepseek2): latent attention; the first layers are dense, the others choose experts and
// have a shared expert.
#include "models/blocks/mla.h"

namespace chaski {

namespace {

// V3 and all GGUF files: a sigmoid with a bias.
class DeepSeek2 : public Mla {
 public:
  DeepSeek2() { choice_bias = Bias::maybe, names.shared = "mlp.shared_experts"; }

  void keys(Keys& k) override {
    latent_keys(k);
    v3_keys(k);
    k.hf_expects({"rope_interleave"}, {true});
  }
  void tensors(Slots& s) override {
    if (gating == kSoftMax) group_rank = Route::Rank::largest;
    Mla::tensors(s);
  }
};

// V2 in Hugging Face folders: a soft-max without a bias. A group's rank is its largest score.
class DeepSeekV2 : public DeepSeek2 {
 public:
  DeepSeekV2() { choice_bias = Bias::none; }

  void keys(Keys& k) override {
    latent_keys(k);
    rms_norm_key(k);
    expert_keys(k, {"n_routed_experts", "num_experts"});
    expert_width_key(k);
    k.word(grouped, "expert_choice", {{"greedy", false}, {"group_limited_greedy", true}})
        .not_in_gguf()
        .in_hf("topk_method")
        .otherwise("greedy");
    router_keys(k, kSoftMax);
    k["expert_shared_count"].hf_otherwise(int64_t{2});
    for (const char* key : {"expert_group_count", "expert_group_used_count"})
      k[key].ignored_in_hf_if([this] { return !grouped; });
    k.hf_expects({"norm_topk_prob"}, {false});
    k.hf_expects({"moe_layer_freq"}, {int64_t{1}});
    k.hf_expects({"scoring_func"}, {"softmax"});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"mlp_bias"}, {false});
  }

 private:
  bool grouped = false;
};

}  // namespace

extern const Architecture kDeepSeek2, kDeepSeekV2;
const Architecture kDeepSeek2{"deepseek2", {"DeepseekV3ForCausalLM"}, make_model<DeepSeek2>};
const Architecture kDeepSeekV2{"deepseek2", {"DeepseekV2ForCausalLM"}, make_model<DeepSeekV2>};

}  // namespace chaski
