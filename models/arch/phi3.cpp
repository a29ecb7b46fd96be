// Phi 3 and 4: Llama's layers with q, k and v in one tensor of a file, and gate and up in another.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Phi3 : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    partial_rope_keys(k, 1);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    window_key(k);
    // The first files have other names for longrope.
    for (const char* name : {"longrope", "su", "yarn"}) k["rope_scaling"].hf_word(name, "longrope");
    expect_scaling(k, {"default", "longrope", "su", "yarn"});
    k.hf_expects({"hidden_act"}, {"silu"});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      fused_slots(s, l.attn, "self_attn.qkv_proj", 1, Bias::none, true);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("self_attn.o_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      gate_up_slots(s, l.ffn);
    }
    end_slots(s);
  }
};

}  // namespace

extern const Architecture kPhi3;
const Architecture kPhi3{"phi3", {"Phi3ForCausalLM"}, make_model<Phi3>};

}  // namespace chaski
