// EXAONE 3 and 3.5: Llama under other names. q and k are half-split (NeoX's rotary order) in GGUF
// files too.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Exaone : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    k["block_count"].in_hf("num_layers");
    rope_keys(k);
    k["rope_theta"].hf_otherwise(500000.0);
    rms_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_epsilon").hf_otherwise(1e-5);
    k.hf_expects({"activation_function"}, {"silu"});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.hf_unread = {".rotary.inv_freq"};
    s.add(token_embd, "token_embd", vocab, dim).in_hf("wte").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "h.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("ln_1");
      s.add(l.attn.q, "attn_q", q_rows(), dim)
          .in_hf("attn.attention.q_proj", halves())
          .in_gguf(halves());
      s.add(l.attn.k, "attn_k", kv_rows(), dim)
          .in_hf("attn.attention.k_proj", halves())
          .in_gguf(halves());
      s.add(l.attn.v, "attn_v", kv_rows(), dim).in_hf("attn.attention.v_proj");
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("attn.attention.out_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("ln_2");
      gated_slots(s, l.ffn, {"mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"});
    }
    end_slots(s, "ln_f");
  }
};

}  // namespace

extern const Architecture kExaone;
const Architecture kExaone{"exaone", {"ExaoneForCausalLM"}, make_model<Exaone>};

}  // namespace chaski
