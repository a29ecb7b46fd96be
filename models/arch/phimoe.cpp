// Phi 3.5 MoE: Llama's layers with layer norms and biases, and with experts in all layers. A
// token's two experts are weighed by the sparse mixer (ops/sparse_mixer.h).
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class PhiMoe : public Experts {
 public:
  PhiMoe() {
    half_split_in_gguf = true;
    norm_bias = Bias::always, head_bias = Bias::maybe;
    names = mixtral_names();
  }

  void keys(Keys& k) override {
    size_keys(k);
    k["head_count_kv"].hf_otherwise(int64_t{8});
    rope_keys(k);
    k["rope_theta"].hf_otherwise(1e6);
    for (const char* name : {"longrope", "su"}) k["rope_scaling"].hf_word(name, "longrope");
    expect_scaling(k, {"default", "longrope", "su"});
    const std::vector<std::string> objects{"rope_parameters", "rope_scaling"};
    const auto places = [&](const char* key) {
      std::vector<std::string> list;
      for (const std::string& object : objects) list.push_back(object + "." + key);
      return list;
    };
    std::vector<std::string> original = places("original_max_position_embeddings");
    original.push_back("original_max_position_embeddings");
    k["rope_original_context"].in_hf(original);
    // The factor on cos and sin, whatever the length.
    k["rope_attention_factor"].in_hf(places("long_mscale"));
    if (rope.scaling == RopeScaling::longrope)
      k.hf_expects(places("short_mscale"), {double(rope.attention_factor)}, "long_mscale, ");
    rms_norm_key(k);  // the name of its epsilon, also in GGUF
    k["norm_epsilon"].hf_otherwise(1e-5);
    window_key(k);
    expert_keys(k, {"num_local_experts"});
    k["expert_used_count"].range(2, 2);
    k.hf_expects({"router_jitter_noise"}, {0.01});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_tensors("attention_bias", attention_biases());
    k.hf_tensors("lm_head_bias", {"lm_head.bias"});
  }

  Graph::Routed choose(Graph& g, ValueId scores, const Mixture&) const override {
    constexpr float kJitter = 0.01f;
    const ValueId experts_of = g.top_k(scores, int(chosen)).experts;
    return {experts_of, g.sparse_mixer(scores, experts_of, 2 * kJitter)};
  }
};

}  // namespace

extern const Architecture kPhiMoe;
const Architecture kPhiMoe{
    "phimoe", {"PhimoeForCausalLM", "PhiMoEForCausalLM"}, make_model<PhiMoe>};

}  // namespace chaski
