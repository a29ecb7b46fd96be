// Orion 14B: Llama with layer norms. q and k are half-split (NeoX's rotary order) in GGUF files
// too.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Orion : public Llama {
 public:
  Orion() { norm_bias = Bias::always; }

 private:
  void keys(Keys& k) override {
    size_keys(k);
    k["context_length"].in_hf(
        {"max_sequence_length", "max_position_embeddings", "model_max_length"});
    rope_keys(k);
    layer_norm_key(k);
    k["norm_epsilon"].in_hf("rms_norm_eps");
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"attention_bias"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_unread = {".rotary_emb.inv_freq"};
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm").with(Bias::always);
      attention_slots(s, l.attn, Bias::none, halves());
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm").with(Bias::always);
      gated_slots(s, l.ffn);
    }
    end_slots(s, "norm", Bias::always);
  }
};

}  // namespace

extern const Architecture kOrion;
const Architecture kOrion{"orion", {"OrionForCausalLM"}, make_model<Orion>};

}  // namespace chaski
