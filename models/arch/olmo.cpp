// OLMo 1: Llama with layer norms without weights; q, k and v may be clipped.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Olmo : public Decoder {
  struct Layer {
    AttentionWeights attn;
    GatedWeights ffn;
  };
  std::vector<Layer> layers;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    layer_norm_key(k);
    k["norm_epsilon"].not_in_hf().otherwise(1e-5);
    clip_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"attention_bias"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      s.layer(i, "layers.");
      attention_slots(s, layers[size_t(i)].attn, Bias::none, {});
      gated_slots(s, layers[size_t(i)].ffn);
    }
    s.after_layers();
    rope_freqs_slot(s);
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      x = g.add(x, attention(g, layer_norm(g, x, {}), layers[i].attn, int(i)));
      x = g.add(x, gated(g, layer_norm(g, x, {}), layers[i].ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), {}));
  }
};

}  // namespace

extern const Architecture kOlmo;
const Architecture kOlmo{"olmo", {"OlmoForCausalLM"}, make_model<Olmo>};

}  // namespace chaski
