// Ministral 3: Llama with yarn, and with queries scaled by their position ("temperature").
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Mistral3 : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    // Without rope_parameters transformers assumes those of one model.
    k["rope_scaling"].required_in_hf();
    expect_scaling(k, {"yarn"});
    // llama.cpp stores only mscale_all_dim and assumes 1 for mscale.
    k["rope_mscale"].gguf_otherwise(1.0);
    k["rope_mscale_all_dim"].in_gguf("rope.scaling.yarn_log_multiplier");
    k.number(rope.temperature, "attention_temperature")
        .in_gguf("attention.temperature_scale")
        .in_hf(std::vector<std::string>{"rope_parameters.llama_4_scaling_beta",
                                        "rope_scaling.llama_4_scaling_beta"})
        .when([this] { return rope.scaling == RopeScaling::yarn; })
        .required_in_hf()
        .optional();
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    window_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
  }
};

}  // namespace

extern const Architecture kMistral3;
const Architecture kMistral3{
    "mistral3", {"Ministral3ForCausalLM"}, make_model<Mistral3>, {"ministral3"}};

}  // namespace chaski
