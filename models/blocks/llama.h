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
  bool half_split_in_gguf = false, half_split_in_hf = true;  // q and k: see halves()
  bool head_norms = false;                                   // of each head's queries and keys
  bool whole_norms = false;     // of the whole row of queries, and of that of keys
  bool sinks = false;           // of attention, one a head
  Bias norm_bias = Bias::none;  // other than none: layer norms instead of RMS norms
  const char *ffn_norm_name = "ffn_norm", *tokens_in_hf = "embed_tokens";

  // The feed-forward of layer `i`: its tensors, and what it adds to the residual stream. `n` is
  // normed.
  virtual void feed_slots(Slots& slots, int64_t i) { gated_slots(slots, layers[size_t(i)].ffn); }
  virtual ValueId feed(Graph& g, ValueId n, size_t i) const { return gated(g, n, layers[i].ffn); }
  // The same of the attention.
  virtual void attend_slots(Slots& slots, int64_t i);
  virtual ValueId attend(Graph& g, ValueId n, size_t i) const {
    return attention(g, n, layers[i].attn, int(i));
  }

  const Weight* sinks_of(int layer) const override {
    return layers[size_t(layer)].attn.sinks.weight;
  }

  // Layer `i` of the residual stream.
  ValueId layer(Graph& g, ValueId x, size_t i) const {
    const Layer& l = layers[i];
    x = residual(g, x, attend(g, norm(g, x, l.attn_norm), i));
    return residual(g, x, feed(g, norm(g, x, l.ffn_norm), i));
  }

  ValueId norm(Graph& g, ValueId x, const Linear& w) const {
    return norm_bias == Bias::none ? rms_norm(g, x, w) : layer_norm(g, x, w);
  }

  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;
};

}  // namespace chaski
