// Gated delta nets (ops/delta_rule.h) in three of four layers, and attention whose result a sigmoid
// gates in the others: Qwen 3 Next and Qwen 3.5, with experts or without.
#pragma once
#include "models/blocks/experts.h"

namespace chaski {

class DeltaNet : public Experts {
 public:
  void agree(const std::string& file) const override;
  void tensors(Slots& slots) override;

  // The layer for one more token (models/heads/delta_next.h) has attention, and the sizes of the
  // other layers. After only_next_layer() the model has no other layer.
  void only_next_layer() { n_layers = interval = 1; }
  void next_slots(Slots& slots);
  // The hidden row of a token, from its embedding and the hidden row that it was drawn from.
  ValueId next_row(Graph& g, ValueId token, ValueId row) const;

 protected:
  DeltaNet() { head_norms = half_split_in_gguf = true, qkv_bias = Bias::none; }

  int64_t interval = 4;  // every interval-th layer attends
  int64_t taps = 0, k_dim = 0, k_heads = 0, v_heads = 0, inner = 0;
  // Value heads of a key head are k_heads apart in the file and not neighbours. GGUF files of
  // Qwen 3.5 are so.
  bool tiled = false;

  void delta_keys(Keys& keys);
  bool attends(int64_t layer) const { return (layer + 1) % interval == 0; }
  int64_t v_dim() const { return inner / v_heads; }

  struct Delta {
    Linear q, k, v, z, a, b, q_conv, k_conv, v_conv, dt_bias, decays, norm, out;
  };
  std::vector<Delta> deltas;
  std::vector<Linear> gates;  // of attention
  struct Next {
    Linear token_norm, row_norm, join, norm;
  };
  Next next;  // around the layer for one more token

  void layer_slots(Slots& slots, int64_t i);

  void attend_slots(Slots& slots, int64_t i) override;
  ValueId attend(Graph& g, ValueId n, size_t i) const override;
  // The matrices of q, k, v, z, a and b.
  virtual void delta_in_slots(Slots& slots, Delta& d) const = 0;
  // One of q, k and v in GGUF's tensor of the three.
  RowOrder of_qkv(int64_t first) const { return part(first, qkv_rows()); }
  int64_t key_rows() const { return k_heads * k_dim; }
  int64_t qkv_rows() const { return 2 * key_rows() + inner; }

 private:
  ValueId remember(Graph& g, ValueId n, const Delta& d) const;
};

}  // namespace chaski
