// What Gemma 3n and Gemma 4 share. Layers differ in heads, widths and windows. The last layers
// store no keys and values and read those of an earlier layer. A layer may also have an input of
// its own next to the residual stream, computed from the token alone: a row of a table plus a
// projection of the token's embedding. Norm weights are stored in full; values are normed without a
// weight.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class GemmaN : public Decoder {
 public:
  void agree(const std::string& file) const override;
  void bound(const std::string& file) override;

 protected:
  GemmaN() { kv_heads = 1; }  // of Decoder, unused: see layer_kv_heads

  struct Layer {
    Linear attn_norm, attn_outer_norm, ffn_norm, ffn_outer_norm;
    AttentionWeights attn;
    GatedWeights ffn;
    Linear own_gate, own_up, own_norm;  // for the layer's own input
  };
  std::vector<int64_t> layer_kv_heads, layer_ffn;
  int64_t readers = 0;    // number of last layers that store no keys and values
  int64_t own_width = 0;  // width of a layer's own input; 0: none
  int64_t own_vocab = 0;  // rows of the table in Hugging Face files
  // Layers without a window may have no value weight: they use their keys, before norm and rope, as
  // values. k_is_v: the Hugging Face file has no value weight.
  bool k_may_be_v = false, k_is_v = false;
  int window_head_dim = 0;  // of layers with a window; the other layers have head_dim
  int window_rope_dim = 0;
  double window_theta = 0;

  // Declares the keys of widths, counts, windows and ropes. Every `period`-th layer has no window,
  // unless the file says otherwise. Head counts and feed-forward widths are lists because layers
  // may differ. kv_heads_in_hf and ffn_in_hf expand the single number that config.json may have.
  void layer_keys(Keys& keys, int64_t period, std::function<Given(int64_t)> kv_heads_in_hf,
                  std::function<Given(int64_t)> ffn_in_hf);
  std::vector<int64_t> in_all_layers(int64_t n) const {
    return std::vector<int64_t>(size_t(n_layers), n);
  }

  // The layer whose keys and values `layer` reads: itself, or the last layer of its kind that
  // stores any.
  int64_t source_of(int64_t layer) const;
  bool keeps(int64_t layer) const { return layer < n_layers - readers; }
  int head_dim_of(int64_t layer) const {
    return has_window(int(layer)) ? window_head_dim : head_dim;
  }
  RopeSpec rope_of(int layer) const override;

  void table_slots(Slots& slots);  // the tensors before the layers
  // Norms, attention, feed-forward, and the weights of the layer's own input.
  void layer_slots(Slots& slots, Layer& l, int64_t layer);
  void head_slots(Slots& slots);

  // `states` are those of the layers so far.
  ValueId attend(Graph& g, ValueId n, const Layer& l, int layer,
                 std::vector<StateId>& states) const;
  // The own inputs of all layers, side by side. `x`: scaled token rows.
  ValueId own_inputs(Graph& g, ValueId x) const;
  // What layer `layer` adds to the residual stream for its own input. `x` gates it.
  ValueId own_input(Graph& g, ValueId x, const Layer& l, int layer, ValueId inputs) const;

 private:
  Linear table_, projection_, projection_norm_;
  std::vector<float> one_;
  Weight ones_,
      window_ones_;  // views of one_, for the norms of values: head_dim and window_head_dim wide
};

}  // namespace chaski
