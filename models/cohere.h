// Cohere's layers, for Command R and those that followed: attention and gated feed-forward side by
// side behind one layer norm, whose norms have no bias; logits are scaled. In all files q and k are
// interleaved.
#pragma once
#include "models/decoder.h"

namespace chaski {

class Cohere : public Decoder {
 public:
  void tensors(Slots& slots) override;
  void build(Graph& graph) const override;

 protected:
  void cohere_keys(Keys& keys);

 private:
  struct Layer {
    Linear norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
};

}  // namespace chaski
