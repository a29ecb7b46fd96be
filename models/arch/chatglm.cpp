// ChatGLM 2 and 3 and the first GLM 4 (9B of June 2024): rotary positions on half of each head, q,
// k and v in one tensor, gate and up in another. q and k are interleaved in all files.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class ChatGlm : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    k["context_length"].in_hf("seq_length");
    k["block_count"].in_hf("num_layers");
    k["head_count_kv"].in_hf("multi_query_group_num");
    k["head_dim"].in_hf("kv_channels");
    k["feed_forward_length"].in_hf("ffn_hidden_size");
    k["vocab_size"].in_hf("padded_vocab_size");
    partial_rope_keys(k, 0.5);
    // rope_ratio multiplies the base theta of 10000.
    k["rope_theta"].in_hf("rope_ratio").converted_from_hf([](double ratio) {
      return Given(10000 * ratio);
    });
    rms_norm_key(k);
    k["norm_epsilon"].in_hf("layernorm_epsilon").hf_otherwise(1e-5);
    k.hf_tensors("add_qkv_bias", {".query_key_value.bias"});
    k.hf_expects({"multi_query_attention"}, {true});
    k.hf_expects({"rmsnorm"}, {true});
    k.hf_expects({"post_layer_norm"}, {true});
    k.hf_expects({"add_bias_linear"}, {false});
    k.hf_expects({"apply_residual_connection_post_layernorm"}, {false});
    k.hf_expects({"original_rope"}, {true});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.hf_unread = {"rotary_pos_emb.inv_freq"};
    s.add(token_embd, "token_embd", vocab, dim)
        .in_hf("embedding.word_embeddings")
        .as(Role::token_table);
    const int64_t q = q_rows(), kv = kv_rows();
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "encoder.layers.");
      const auto part_of = [&](Linear& member, const char* name, int64_t rows, const char* theirs,
                               const char* hf, RowOrder order) -> Slots::Slot& {
        return s.add(member, name, rows, dim).in_hf(hf, order).in_gguf(theirs, order);
      };
      const auto of_qkv = [&](Linear& member, const char* name, int64_t first, int64_t rows) {
        part_of(member, name, rows, "attn_qkv", "self_attention.query_key_value",
                part(first, q + 2 * kv))
            .with(Bias::maybe);
      };
      const auto of_gated = [&](Linear& member, const char* name, int64_t first) {
        part_of(member, name, ffn, "ffn_up", "mlp.dense_h_to_4h", part(first, 2 * ffn));
      };
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      of_qkv(l.attn.q, "attn_q", 0, q);
      of_qkv(l.attn.k, "attn_k", q, kv);
      of_qkv(l.attn.v, "attn_v", q + kv, kv);
      s.add(l.attn.output, "attn_output", dim, q).in_hf("self_attention.dense");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      of_gated(l.ffn.gate, "ffn_gate", 0);
      of_gated(l.ffn.up, "ffn_up", ffn);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.dense_4h_to_h");
    }
    s.after_layers();
    s.add(output_norm, "output_norm", 1, dim).in_hf("encoder.final_layernorm");
    s.add(output, "output", vocab, dim).in_hf("output_layer").as(Role::head).optional();
  }
};

}  // namespace

extern const Architecture kChatGlm;
const Architecture kChatGlm{
    "chatglm", {"ChatGLMModel", "ChatGLMForConditionalGeneration"}, make_model<ChatGlm>};

}  // namespace chaski
