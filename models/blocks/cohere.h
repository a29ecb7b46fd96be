// Cohere's layers, for Command R and those that followed: attention and gated feed-forward side by
// side behind one layer norm, whose norms have no bias; logits are scaled. In all files q and k are
// interleaved.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class Cohere : public Decoder {
 public:
  void tensors(Slots& slots) override;
  void bound(const std::string& file) override;
  void build(Graph& graph) const override;

 protected:
  void cohere_keys(Keys& keys);
  // Layer norms of queries and keys, with weights of each head. GGUF files just have them.
  bool head_norms = false;

 private:
  struct Layer {
    Linear norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  ValueId mixed(Graph& graph, ValueId n, const AttentionWeights& w, int layer) const;
  std::vector<Layer> layers;
  std::vector<float> zero_;
  Weight no_bias_;  // over it, for the norms of heads
};

}  // namespace chaski
