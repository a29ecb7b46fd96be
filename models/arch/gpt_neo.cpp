// GPT-Neo: GPT-2 with a window in every second layer and unscaled scores.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class GptNeo : public Gpt {
  void keys(Keys& k) override {
    size_keys(k);
    key_names(k, "block_count", {"num_layers", "num_hidden_layers"}, n_layers);
    key_names(k, "head_count", {"num_heads", "num_attention_heads"}, heads);
    k["head_count_kv"].not_in_hf();
    k["feed_forward_length"].hf_otherwise([this] { return 4 * dim; });
    layer_norm_key(k);
    window_key(k);
    k["sliding_window"].in_hf("window_size").range(1, 1 << 30).hf_otherwise(int64_t{256});
    activation_key(k, "activation_function", "gelu_tanh");
    std::vector<std::string> usual;
    for (int64_t i = 0; i < n_layers; ++i) usual.push_back(is_local(i) ? "local" : "global");
    k.hf_expects({"attention_layers"}, {usual}, "num_layers words, ");
    k.hf_expects({"attention_types"}, {usual}, "num_layers words, ");
    k.hf_tied = true;
  }

  static bool is_local(int64_t layer) { return layer % 2 == 1; }

  void tensors(Slots& s) override {
    s.hf_prefix = "transformer.";
    s.hf_unread = {".attn.attention.bias", ".attn.attention.masked_bias"};
    embedding_slots(s, "wte", "wpe");
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "h.");
      norm_slot(s, l.attn_norm, "attn_norm", "ln_1", Bias::always);
      s.add(l.attn.q, "attn_q", q_rows(), dim).in_hf("attn.attention.q_proj");
      s.add(l.attn.k, "attn_k", kv_rows(), dim).in_hf("attn.attention.k_proj");
      s.add(l.attn.v, "attn_v", kv_rows(), dim).in_hf("attn.attention.v_proj");
      s.add(l.attn.output, "attn_output", dim, q_rows())
          .in_hf("attn.attention.out_proj")
          .with(Bias::always);
      norm_slot(s, l.ffn_norm, "ffn_norm", "ln_2", Bias::always);
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.c_fc").with(Bias::always);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.c_proj").with(Bias::always);
    }
    end_slots(s, "ln_f", Bias::always);
  }

  void build(Graph& g) const override {
    ValueId x = g.add(g.get_rows(*token_embd.weight),
                      g.get_rows(*position_embd.weight, GetRows::By::position));
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId n = layer_norm(g, x, l.attn_norm);
      const ValueId q = linear(g, n, l.attn.q), k = linear(g, n, l.attn.k),
                    v = linear(g, n, l.attn.v);
      const StateId kv =
          g.state(Paged{kv_heads, head_dim, head_dim, is_local(int64_t(i)) ? window : 0});
      g.kv_write(kv, k, v);
      x = g.add(x, linear(g, g.attention(q, kv, 1), l.attn.output));
      x = g.add(x, plain(g, layer_norm(g, x, l.ffn_norm), l.ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kGptNeo;
const Architecture kGptNeo{"gptneo", {"GPTNeoForCausalLM"}, make_model<GptNeo>};

}  // namespace chaski
