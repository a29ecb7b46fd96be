// The layers of RWKV 6 and 7: a time mix (ops/wkv.h) and a channel mix, each after a layer norm.
// Both read the token together with the token before it.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

class Rwkv : public Decoder {
 public:
  void agree(const std::string& file) const override;
  void bound(const std::string& file) override;
  void build(Graph& g) const override;

 protected:
  Rwkv() { heads = kv_heads = 1, rope.dim = 0, activation = Activation::relu2; }

  // A matrix of low rank, and what is added to its result.
  struct LowRank {
    Linear down, up, added;
  };
  struct TimeMix {
    Linear r, k, v, output, norm, bonus;
    LowRank decay;
  };
  struct Layer {
    Linear time_norm, channel_norm;
    TimeMix time;
    Linear lerp_k;  // of the channel mix
    PlainWeights channel;
  };
  std::vector<Layer> layers;
  Linear token_norm;

  void layer_keys(Keys& keys);
  // All tensors; time_slots() and channel_slots() add those of their version.
  void tensors(Slots& slots) override;
  virtual void time_slots(Slots& slots, int64_t i) = 0;
  virtual void channel_slots(Slots&, int64_t) {}
  // rows: those of `down`. Hugging Face's names are those of flash-linear-attention.
  void low_rank_slots(Slots& s, LowRank& w, const std::string& down, const std::string& up,
                      const std::string& added, int64_t rank, const std::string& hf = "");

  // What is added to the residual stream. `n` is normed, `before` the normed token before it less
  // `n`. `first` is the value of layer 0.
  virtual ValueId time_mix(Graph& g, ValueId n, ValueId before, size_t i, ValueId& first) const = 0;
  virtual ValueId channel_mix(Graph& g, ValueId n, ValueId before, size_t i) const;
  virtual ValueId after_layer(Graph&, ValueId x, size_t) const { return x; }

  static ValueId lerp(Graph& g, ValueId n, ValueId before, const Linear& part) {
    return g.add(n, g.mul(before, *part.weight));
  }
  static ValueId low_rank(Graph& g, ValueId x, const LowRank& w) {
    return linear(g, x, added_to(w.up, w.added));
  }
  static Linear added_to(Linear w, const Linear& added) {
    w.bias = added.weight;
    return w;
  }
  int wkv_heads() const { return int(dim / head_dim); }
  Wkv wkv() const { return {0, wkv_heads(), head_dim}; }
  ValueId head_norm(Graph& g, ValueId y, const Linear& w) const;

 private:
  int64_t no_heads = 0;
  float head_eps = 0;             // of the norm of each head's result
  std::vector<float> difference;  // of a token and the one after it, as a convolution
  Weight before_less_now;
};

}  // namespace chaski
