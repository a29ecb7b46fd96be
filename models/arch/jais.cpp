// Jais 1 (13B, 30B, and the family of 590M to 70B): GPT-2 with ALiBi positions and a gated silu
// feed-forward. Scores are divided by the width of a head, not by its root. Token rows and logits
// are scaled; in GGUF files this is part of the weights.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Jais : public Llama {
 public:
  Jais() { norm_bias = Bias::always; }

 private:
  float output_scale = 1, width_scale = 1;  // their product is the scale of logits

  void keys(Keys& k) override {
    size_keys(k);
    gpt_size_names(k);
    k["head_count_kv"].not_in_hf();
    k["head_dim"].not_in_hf();
    k["feed_forward_length"].in_hf("n_inner").hf_otherwise([this] { return 4 * dim; });
    layer_norm_key(k);
    alibi_key(k);
    const auto scale = [&](float& member, const char* name, std::vector<std::string> places) {
      k.number(member, name).in_gguf_always(1).in_hf(std::move(places)).otherwise(1.0).positive();
    };
    scale(embedding_scale, "embedding_scale", {"mup_embeddings_scale", "embeddings_scale"});
    scale(output_scale, "output_scale", {"mup_output_alpha"});
    scale(width_scale, "width_scale", {"mup_width_scale", "width_scale"});
    k.hf_expects({"activation_function"}, {"swiglu"});
    k.hf_expects({"position_embedding_type"}, {"alibi"});
    k.hf_expects({"mup_scale_qk_dot_by_d", "scale_qk_dot_by_d"}, {true});
    k.hf_expects({"scale_attn_weights"}, {true});
    k.hf_expects({"scale_attn_by_inverse_layer_idx"}, {false});
    k.hf_expects({"add_cross_attention"}, {false});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    score_scale = 1 / float(head_dim);
    logit_scale = output_scale * width_scale;
    s.hf_prefix = "transformer.";
    s.hf_unread = {".attn.bias", ".attn.masked_bias", "relative_pe.slopes"};
    s.add(token_embd, "token_embd", vocab, dim).in_hf("wte").as(Role::token_table);
    const auto norm = [&](Linear& member, const char* name, const char* hf) {
      s.add(member, name, 1, dim).in_hf(hf).with(Bias::always);
    };
    const auto linear = [&](Linear& member, const char* name, int64_t rows, int64_t cols,
                            const char* hf) {
      s.add(member, name, rows, cols).in_hf(hf, kTransposed).with(Bias::always);
    };
    const int64_t q = q_rows(), kv = kv_rows(), all = q + 2 * kv;
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      const auto of_qkv = [&](Linear& member, const char* name, int64_t first, int64_t rows) {
        s.add(member, name, rows, dim)
            .in_hf("attn.c_attn", kTransposed.inside(first, all))
            .in_gguf("attn_qkv", part(first, all))
            .with(Bias::always);
      };
      s.layer(i, "h.");
      norm(l.attn_norm, "attn_norm", "ln_1");
      of_qkv(l.attn.q, "attn_q", 0, q);
      of_qkv(l.attn.k, "attn_k", q, kv);
      of_qkv(l.attn.v, "attn_v", q + kv, kv);
      linear(l.attn.output, "attn_output", dim, q, "attn.c_proj");
      norm(l.ffn_norm, "ffn_norm", "ln_2");
      linear(l.ffn.gate, "ffn_gate", ffn, dim, "mlp.c_fc2");
      linear(l.ffn.up, "ffn_up", ffn, dim, "mlp.c_fc");
      linear(l.ffn.down, "ffn_down", dim, ffn, "mlp.c_proj");
    }
    s.after_layers();
    norm(output_norm, "output_norm", "ln_f");
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional().always_in_gguf();
  }
};

}  // namespace

extern const Architecture kJais;
const Architecture kJais{"jais", {"JAISLMHeadModel"}, make_model<Jais>};

}  // namespace chaski
