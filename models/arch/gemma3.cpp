// Gemma 3, text: Gemma 2 with norms of each head's queries and keys instead of soft caps. Five of
// six layers have a window, and these have a rope of their own.
#include "models/blocks/gemma.h"

namespace chaski {

namespace {

class Gemma3 : public Gemma {
 public:
  Gemma3() { head_norms = true; }

 private:
  double local_theta = 0;

  void keys(Keys& k) override {
    size_keys(k);
    // The config.json of 4B and larger omits values that equal the defaults in transformers.
    for (auto [name, usual] : {std::pair{"context_length", 131072},
                               {"head_count", 8},
                               {"head_count_kv", 4},
                               {"head_dim", 256},
                               {"vocab_size", 262208}})
      k[name].hf_otherwise(int64_t{usual});
    rope_keys(k);
    k["rope_theta"].otherwise(1e6);
    k.number(local_theta, "rope_theta_of_windows")
        .in_gguf("rope.freq_base_swa")
        .in_hf(std::vector<std::string>{"rope_parameters.sliding_attention.rope_theta",
                                        "rope_local_base_freq"})
        .otherwise(10000.0)
        .positive();
    gemma_keys(k);
    window_key(k);
    k["sliding_window"].hf_null_is(int64_t{0}).hf_otherwise(int64_t{4096});
    window_pattern_key(k, 6);
    score_scale_key(k, 62);
    k.number(score_cap, "attention_soft_cap")
        .in_gguf("attn_logit_softcapping")
        .not_in_hf()  // transformers ignores it
        .optional();
    k.number(logit_cap, "logit_soft_cap")
        .in_gguf("final_logit_softcapping")
        .in_hf("final_logit_softcapping")
        .optional();
    k.hf_expects({"hidden_activation", "hidden_act"}, {"gelu_pytorch_tanh"});
    k.hf_expects({"rope_parameters.sliding_attention.rope_type"}, {"default"});
    // The new form has an object for each kind of layer.
    for (const char* place : {"rope_parameters.rope_type", "rope_parameters.type",
                              "rope_parameters.rope_theta", "rope_scaling.type"})
      k.hf_expects({place}, {});
  }

  RopeSpec rope_of(int layer) const override {
    if (!has_window(layer)) return rope;
    RopeSpec local;  // without scaling
    local.dim = rope.dim, local.theta = local_theta;
    return local;
  }
};

}  // namespace

extern const Architecture kGemma3;
const Architecture kGemma3{"gemma3", {"Gemma3ForCausalLM"}, make_model<Gemma3>, {"gemma3_text"}};

}  // namespace chaski
