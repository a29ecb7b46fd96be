// GPT-2's layers, for those that are built like it and differ in names, numbers, biases and
// positions: norm, attention, norm, feed-forward without a gate.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class Gpt : public Decoder {
 public:
  void build(Graph& graph) const override;

 protected:
  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    PlainWeights ffn;
  };
  Linear token_embd_norm, position_embd;  // of those that have them
  std::vector<Layer> layers;

  // token_embd and, where there is one, position_embd by their Hugging Face names.
  void embedding_slots(Slots& slots, const char* tokens, const char* positions = nullptr);
  // Hugging Face's names for what is in a layer.
  struct Names {
    const char *layers, *attn_norm, *qkv, *attn_output, *ffn_norm, *ffn_up, *ffn_down;
  };
  // All layers, with `bias` on everything; q, k and v are in one tensor of every file
  // (fused_slots).
  void layer_slots(Slots& slots, const Names& hf, int64_t turns, Bias bias);

  void norm_slot(Slots& s, Linear& w, const char* name, const char* hf, Bias bias) const {
    s.add(w, name, 1, dim).in_hf(hf).with(bias);
  }
};

}  // namespace chaski
