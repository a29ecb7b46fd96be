// Granite 3: Llama with four scale factors, for embeddings, scores, residuals and logits. The
// models named A400M and A800M have experts in all layers.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Granite : public Experts {
 protected:
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

class GraniteMoe : public Granite {
 public:
  GraniteMoe() {
    names = {"block_sparse_moe.router.layer", "block_sparse_moe.input_linear",
             "block_sparse_moe.input_linear", "block_sparse_moe.output_linear"};
    gate_up_in_one = true;
  }

  void keys(Keys& k) override {
    Granite::keys(k);
    expert_keys(k, {"num_local_experts"});
  }
};

}  // namespace

extern const Architecture kGranite, kGraniteMoe;
const Architecture kGranite{"granite", {"GraniteForCausalLM"}, make_model<Granite>};
const Architecture kGraniteMoe{"granitemoe", {"GraniteMoeForCausalLM"}, make_model<GraniteMoe>};

}  // namespace chaski
