// Llama's layers, for architectures that are built like it and differ in names, sizes or biases.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class Llama : public Decoder {
 public:
  void keys(Keys& keys) override;
  void tensors(Slots& slots) override;
  void build(Graph& graph) const override;

 protected:
  Bias qkv_bias = Bias::maybe;
  bool half_split_in_gguf = false, half_split_in_hf = true;  // order of q and k
  bool head_norms = false;
  const char* ffn_norm_name = "ffn_norm";

  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
};

}  // namespace chaski
