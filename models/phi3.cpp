// Phi 3 and 4, without longrope: Llama's layers, with q, k and v in one tensor of a file and gate
// and up in another.
#include "models/llama.h"

namespace chaski {

namespace {

class Phi3 : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    partial_rope_keys(k, 1);
    rms_norm_key(k);
    window_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "model.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("embed_tokens").as(Role::token_table);
    const auto of_gate_up = [&](Linear& member, const char* name, int64_t first) {
      const RowOrder order = part(first, 2 * ffn);
      s.add(member, name, ffn, dim).in_hf("mlp.gate_up_proj", order).in_gguf("ffn_up", order);
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      fused_slots(s, l.attn, "self_attn.qkv_proj", 1, Bias::none, true);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("self_attn.o_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      of_gate_up(l.ffn.gate, "ffn_gate", 0);
      of_gate_up(l.ffn.up, "ffn_up", ffn);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.down_proj");
    }
    s.behind_layers();
    s.add(output_norm, "output_norm", 1, dim).in_hf("norm");
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
  }
};

}  // namespace

extern const Architecture kPhi3;
const Architecture kPhi3{"phi3", {"Phi3ForCausalLM"}, make_model<Phi3>};

}  // namespace chaski
