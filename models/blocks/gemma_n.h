// What Gemma 3n and Gemma 4 have in common. Layers differ in heads, widths and windows; the last
// ones keep nothing and read the keys and values of one before them; and each may have an input
// beside the residual stream, made of the token alone: a row of a table, and what a matrix makes of
// the token's embedding. Norms have no 1 left away; values are normed without a weight.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class GemmaN : public Decoder {
 public:
  void agree(const std::string& file) const override;
  void bound(const std::string& file) override;

 protected:
  GemmaN() { kv_heads = 1; }  // Decoder's number for all: see layer_kv_heads

  struct Layer {
    Linear attn_norm, attn_outer_norm, ffn_norm, ffn_outer_norm;
    AttentionWeights attn;
    GatedWeights ffn;
    Linear own_gate, own_up, own_norm;  // of its own input
  };
  std::vector<int64_t> layer_kv_heads, layer_ffn;
  int64_t readers = 0;    // so many of the last layers keep no keys and values
  int64_t own_width = 0;  // of a layer's own input; 0: it has none
  int64_t own_vocab = 0;  // rows of the table in Hugging Face files
  // Layers without a window may have no values of their own: their keys, before norm and rope, are
  // read for them. k_is_v: a Hugging Face file has none.
  bool k_may_be_v = false, k_is_v = false;
  int near_head_dim = 0;  // of layers with a window; of the others: head_dim
  int near_rope_dim = 0;
  double near_theta = 0;

  // Widths, numbers, windows and ropes. Numbers of heads and widths of feed-forwards are lists in
  // order not to be the same everywhere; kv_heads_in_hf and ffn_in_hf make one of what config.json
  // says in one number.
  void layer_keys(Keys& keys, int64_t period, std::function<Given(int64_t)> kv_heads_in_hf,
                  std::function<Given(int64_t)> ffn_in_hf);
  std::vector<int64_t> in_all_layers(int64_t n) const {
    return std::vector<int64_t>(size_t(n_layers), n);
  }

  // The layer whose keys and values a layer reads: itself, or the last of its kind that keeps any.
  int64_t source_of(int64_t layer) const;
  bool keeps(int64_t layer) const { return layer < n_layers - readers; }
  int head_dim_of(int64_t layer) const { return has_window(int(layer)) ? near_head_dim : head_dim; }
  RopeSpec rope_of(int layer) const override;

  void table_slots(Slots& slots);  // in front of the layers
  // Norms, attention, feed-forward and what makes the layer's own input its own.
  void layer_slots(Slots& slots, Layer& l, int64_t layer);
  void head_slots(Slots& slots);

  // `states` has those of the layers so far.
  ValueId attend(Graph& g, ValueId n, const Layer& l, int layer,
                 std::vector<StateId>& states) const;
  // The inputs of all layers side by side; `x`: token rows, scaled.
  ValueId own_inputs(Graph& g, ValueId x) const;
  // What is added to the residual stream because of `layer`'s; `x` is what decides how much of it.
  ValueId own_input(Graph& g, ValueId x, const Layer& l, int layer, ValueId inputs) const;

 private:
  Linear table_, projection_, projection_norm_;
  std::vector<float> one_;
  Weight ones_, near_ones_;  // over them, for values: of head_dim, of near_head_dim
};

}  // namespace chaski
