// InternLM 2 and 2.5: Llama under other names, with q, k and v in one tensor of a Hugging Face
// file, key head by key head.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class InternLm2 : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"bias"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "model.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("tok_embeddings").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("attention_norm");
      fused_slots(s, l.attn, "attention.wqkv", kv_heads, Bias::none, false);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("attention.wo");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("ffn_norm");
      gated_slots(s, l.ffn, {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"});
    }
    end_slots(s, "norm", Bias::none, "output");
  }
};

}  // namespace

extern const Architecture kInternLm2;
const Architecture kInternLm2{"internlm2", {"InternLM2ForCausalLM"}, make_model<InternLm2>};

}  // namespace chaski
