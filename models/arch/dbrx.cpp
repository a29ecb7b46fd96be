// DBRX: layer norms without biases, clipped q, k and v, and experts in all layers.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Dbrx : public Experts {
 public:
  Dbrx() {
    norm_bias = Bias::maybe;
    names = {"ffn.router.layer", "ffn.experts.mlp.w1", "ffn.experts.mlp.v1", "ffn.experts.mlp.w2"};
    bare_in_hf = down_transposed = true;
  }

  void keys(Keys& k) override {
    size_keys(k);
    key_names(k, "context_length", {"max_seq_len", "max_position_embeddings"}, context);
    key_names(k, "embedding_length", {"d_model", "hidden_size"}, dim);
    key_names(k, "block_count", {"n_layers", "num_hidden_layers"}, n_layers);
    key_names(k, "head_count", {"n_heads", "num_attention_heads"}, heads);
    k["head_count_kv"].in_hf("attn_config.kv_n_heads").hf_otherwise(int64_t{1});
    k["head_dim"].not_in_hf();
    k["feed_forward_length"].in_hf("ffn_config.ffn_hidden_size");
    rope_keys(k);
    // The authors' files have it here. transformers reads rope_parameters only.
    std::vector<std::string> theta = k["rope_theta"].hf;
    theta.back() = "attn_config.rope_theta";
    k["rope_theta"].in_hf(theta);
    layer_norm_key(k);
    k["norm_epsilon"].not_in_hf().hf_otherwise(1e-5).otherwise(1e-5);
    clip_key(k);
    k["clamp_kqv"].in_hf("attn_config.clip_qkv");
    expert_keys(k, {"ffn_config.moe_num_experts"});
    k["expert_used_count"].in_hf("ffn_config.moe_top_k");
    k.flag(normalised, "expert_weights_norm")
        .in_gguf_always(true)
        .in_hf("ffn_config.moe_normalize_expert_weights")
        .converted_from_hf([](double power) { return Given(power == 1); })
        .hf_null_is(false)
        .otherwise(true);
    k.hf_expects({"ffn_config.moe_normalize_expert_weights"}, {1.0});
    k.hf_expects({"ffn_config.ffn_act_fn.name"}, {"silu"});
    k.hf_expects({"head_dim"}, {int64_t{head_dim}});
    k.hf_expects({"tie_word_embeddings"}, {false});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("wte").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "blocks.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("norm_attn_norm.norm_1");
      fused_slots(s, l.attn, "norm_attn_norm.attn.Wqkv", 1, Bias::none, true);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("norm_attn_norm.attn.out_proj");
      s.add(l.ffn_norm, "attn_output_norm", 1, dim).in_hf("norm_attn_norm.norm_2");
      feed_slots(s, i);
    }
    end_slots(s, "norm_f");
  }
};

}  // namespace

extern const Architecture kDbrx;
const Architecture kDbrx{"dbrx", {"DbrxForCausalLM"}, make_model<Dbrx>};

}  // namespace chaski
