// Gemma 2: norms before and after attention and feed-forward, a window in every other layer, soft
// caps on scores and logits.
#include "models/blocks/gemma.h"

namespace chaski {

namespace {

class Gemma2 : public Gemma {
 public:
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    gemma_keys(k);
    window_key(k);
    k["sliding_window"].otherwise(4096).hf_null_is(int64_t{0});
    window_pattern_key(k, 2);
    score_scale_key(k, 46);
    k.number(score_cap, "attention_soft_cap")
        .in_gguf("attn_logit_softcapping")
        .in_hf("attn_logit_softcapping")
        .otherwise(50.0)
        .hf_null_is(0.0);
    k.number(logit_cap, "logit_soft_cap")
        .in_gguf("final_logit_softcapping")
        .in_hf("final_logit_softcapping")
        .otherwise(30.0)
        .hf_null_is(0.0);
    k.hf_expects({"hidden_activation", "hidden_act"}, {"gelu_pytorch_tanh"});
  }
};

}  // namespace

extern const Architecture kGemma2;
const Architecture kGemma2{"gemma2", {"Gemma2ForCausalLM"}, make_model<Gemma2>};

}  // namespace chaski
