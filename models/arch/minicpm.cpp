// MiniCPM 1, 2 and 4, dense: Llama with three factors, for embeddings, residuals and logits. Old
// GGUF files do not have them; the defaults are those of the 2B model.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class MiniCpm : public Llama {
  void keys(Keys& k) override {
    Llama::keys(k);
    k.number(embedding_scale, "embedding_scale").in_hf("scale_emb").otherwise(12.0);
    const auto of_depth = [this](double scale) {
      return Given(scale / std::sqrt(double(n_layers)));
    };
    k.number(residual_scale, "residual_scale")
        .in_hf("scale_depth")
        .converted_from_hf(of_depth)
        .otherwise([=] { return of_depth(1.4); });
    const auto of_base = [this](double base) { return Given(double(dim) / base); };
    k.number(logit_divisor, "logit_scale")
        .in_hf("dim_model_base")
        .converted_from_hf(of_base)
        .positive()
        .otherwise([=] { return of_base(256); });
  }
};

}  // namespace

extern const Architecture kMiniCpm;
const Architecture kMiniCpm{"minicpm", {"MiniCPMForCausalLM"}, make_model<MiniCpm>};

}  // namespace chaski
