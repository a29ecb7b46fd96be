// Gemma's layers, for its three generations: RMS norms whose weights Hugging Face files have
// without their 1, rows of the token table times sqrt(dim), a feed-forward gated by gelu.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class Gemma : public Decoder {
 public:
  void tensors(Slots& slots) override;
  void build(Graph& graph) const override;

 protected:
  void gemma_keys(Keys& keys);  // of all generations
  // Scores are multiplied with 1 / sqrt(query_pre_attn_scalar). GGUF files do not say it: it is dim
  // / heads in the model that has `odd_layers` layers, and head_dim in all others.
  void score_scale_key(Keys& keys, int64_t odd_layers);
  bool outer_norms = true;  // behind attention and feed-forward, too
  bool head_norms = false;

 private:
  struct Layer {
    Linear attn_norm, attn_outer_norm, ffn_norm, ffn_outer_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
};

}  // namespace chaski
