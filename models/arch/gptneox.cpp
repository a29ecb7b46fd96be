// GPT-NeoX and Pythia: layer norms, rotary positions on a quarter of each head, gelu feed-forward,
// biases everywhere. With `parallel`, attention and feed-forward read the same input, each after
// its own norm.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class GptNeoX : public Gpt {
  bool parallel = true;

  void keys(Keys& k) override {
    size_keys(k);
    k["head_count_kv"].not_in_hf();
    partial_rope_keys(k, 0.25);
    older_rope_names(k, "rotary_pct", "rotary_emb_base");
    layer_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_eps");
    k.flag(parallel, "use_parallel_residual").in_hf("use_parallel_residual").otherwise(true);
    activation_key(k, "hidden_act", "gelu");
    k.hf_expects({"attention_bias"}, {true});
  }

  void tensors(Slots& s) override {
    s.hf_prefix = "gpt_neox.";
    s.hf_unread = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"};
    embedding_slots(s, "embed_in");
    layer_slots(s,
                {"layers.", "input_layernorm", "attention.query_key_value", "attention.dense",
                 "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
                heads, Bias::always);
    end_slots(s, "final_layer_norm", Bias::always, "embed_out");
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId mixed = g.add(x, attention(g, layer_norm(g, x, l.attn_norm), l.attn, int(i)));
      x = g.add(mixed, plain(g, layer_norm(g, parallel ? x : mixed, l.ffn_norm), l.ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kGptNeoX;
const Architecture kGptNeoX{"gptneox", {"GPTNeoXForCausalLM"}, make_model<GptNeoX>};

}  // namespace chaski
