// Granite 3, dense: Llama with four scale factors, for embeddings, scores, residuals and logits.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Granite : public Llama {
  void keys(Keys& k) override {
    Llama::keys(k);
    k.number(embedding_scale, "embedding_scale").in_hf("embedding_multiplier").otherwise(1.0);
    k.number(residual_scale, "residual_scale").in_hf("residual_multiplier").otherwise(1.0);
    k.number(score_scale, "attention_scale")
        .in_gguf("attention.scale")
        .in_hf("attention_multiplier")
        .hf_otherwise(1.0)
        .optional();
    k.number(logit_divisor, "logit_scale").in_hf("logits_scaling").hf_otherwise(1.0).positive();
  }
};

}  // namespace

extern const Architecture kGranite;
const Architecture kGranite{"granite", {"GraniteForCausalLM"}, make_model<Granite>};

}  // namespace chaski
