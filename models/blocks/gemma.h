// Gemma's layers, for its three generations. The RMS norms of Hugging Face files store weight - 1,
// token rows are multiplied by sqrt(dim), and the feed-forward is gated by gelu.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class Gemma : public Decoder {
 public:
  void tensors(Slots& slots) override;
  void build(Graph& graph) const override;

 protected:
  void gemma_keys(Keys& keys);  // shared by all generations
  // Scores are multiplied by 1 / sqrt(query_pre_attn_scalar). GGUF files do not store that number:
  // it is dim / heads in the model with `odd_layers` layers, and head_dim in all others.
  void score_scale_key(Keys& keys, int64_t odd_layers);
  bool outer_norms = true;  // norms also after attention and feed-forward
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
