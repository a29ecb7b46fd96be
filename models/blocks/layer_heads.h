// Llama's layers where each layer has its own numbers of heads and its own feed-forward width.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class LayerHeads : public Decoder {
 public:
  void agree(const std::string& file) const override;
  void build(Graph& graph) const override;

 protected:
  LayerHeads() { heads = kv_heads = 1; }  // the lists below replace them

  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
  // By layer. A layer without heads has no attention, and one without a width no feed-forward. If
  // only its key heads are 0, the output matrix is all of its attention.
  std::vector<int64_t> layer_heads, layer_kv_heads, layer_ffn;

  // Widths, counts and the lists, all but block_count; `least`: of an item.
  void layer_keys(Keys& keys, int64_t least);
  int64_t q_rows_of(size_t layer) const { return layer_heads[layer] * head_dim; }
  int64_t kv_rows_of(size_t layer) const { return layer_kv_heads[layer] * head_dim; }
  bool attends(size_t layer) const { return layer_heads[layer] > 0 && layer_kv_heads[layer] > 0; }

 private:
  ValueId mixed(Graph& g, ValueId n, const AttentionWeights& w, size_t layer) const;
};

}  // namespace chaski
