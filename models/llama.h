// Llama's layers, for those that are built like it and differ in names, numbers or biases.
#pragma once
#include "models/decoder.h"

namespace chaski {

class Llama : public Decoder {
 public:
  void keys(Keys& keys) override;
  void tensors(Slots& slots) override;
  void build(Graph& graph) const override;

 protected:
  Bias qkv_bias = Bias::maybe;
  bool half_split_in_gguf = false;  // q and k; in Hugging Face files they always are
  bool head_norms = false;

  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
};

}  // namespace chaski
