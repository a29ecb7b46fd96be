// GLM 4 9B of June 2024 and GLM Edge, as transformers has them (models/chatglm.cpp: as their
// authors do): Llama with rotary positions on half of each head, gate and up in one tensor. q and k
// are interleaved.
#include "models/llama.h"

namespace chaski {

namespace {

class Glm : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    partial_rope_keys(k, 0.5);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1.5625e-7);
    k.hf_expects({"hidden_act"}, {"silu"});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      attention_slots(s, l.attn, Bias::maybe, {}, {});
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      gate_up_slots(s, l.ffn);
    }
    end_slots(s);
  }
};

}  // namespace

extern const Architecture kGlm;
const Architecture kGlm{"glm", {"GlmForCausalLM"}, make_model<Glm>};

}  // namespace chaski
