// Cohere's layers, for Command R and its successors. Attention and gated feed-forward both read the
// output of one layer norm without bias; logits are scaled. q and k are interleaved in all files.
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
  // Layer norms of queries and keys, with weights for each head. GGUF files have no key for it;
  // their tensors show it.
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
  Weight no_bias_;  // view of zero_, for the norms of heads
};

}  // namespace chaski
