// GPT-2's layers: norm, attention, norm, feed-forward without a gate. For architectures that are
// built like it and differ in names, sizes, biases and positions.
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
  Linear token_embd_norm, position_embd;  // for architectures that have them
  std::vector<Layer> layers;

  // token_embd and, if `positions` is given, position_embd, under their Hugging Face names.
  void embedding_slots(Slots& slots, const char* tokens, const char* positions = nullptr);
  // Hugging Face's names of a layer's tensors. Without `qkv` a file has q, k and v in three tensors
  // under Llama's names.
  struct Names {
    const char *layers, *attn_norm, *qkv, *attn_output, *ffn_norm, *ffn_up, *ffn_down;
  };
  // All layers, with `bias` everywhere. If q, k and v are one tensor, they are in GGUF files too,
  // and its rows alternate `turns` times (fused_slots).
  void layer_slots(Slots& slots, const Names& hf, int64_t turns, Bias bias);

  void norm_slot(Slots& s, Linear& w, const char* name, const char* hf, Bias bias) const {
    s.add(w, name, 1, dim).in_hf(hf).with(bias);
  }
};

}  // namespace chaski
