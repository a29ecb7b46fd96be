// OPT (all but 350M, whose norms are in other places): layer norms, learned positions, relu
// feed-forward, biases everywhere.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class Opt : public Gpt {
  void keys(Keys& k) override {
    size_keys(k);
    k["head_count_kv"].not_in_hf();
    k["feed_forward_length"].in_hf("ffn_dim");
    layer_norm_key(k);
    k["norm_epsilon"].not_in_hf().otherwise(1e-5);
    activation_key(k, "activation_function", "relu");
    k.hf_expects({"do_layer_norm_before"}, {true});
    k.hf_expects({"word_embed_proj_dim"}, {dim}, "hidden_size, ");
    k.hf_expects({"_remove_final_layer_norm"}, {false});
    k.hf_expects({"layer_norm_elementwise_affine"}, {true});
    k.hf_expects({"enable_bias"}, {true});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    s.hf_prefix = "model.";
    embedding_slots(s, "decoder.embed_tokens");
    // The first two rows of the file's table are no positions (padding).
    s.add(position_embd, "position_embd", context, dim)
        .in_hf("decoder.embed_positions", part(2, context + 2))
        .as(Role::position_table);
    const auto linear = [&](Linear& member, const char* name, int64_t rows, int64_t cols,
                            const char* hf) {
      s.add(member, name, rows, cols).in_hf(hf).with(Bias::always);
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "decoder.layers.");
      norm_slot(s, l.attn_norm, "attn_norm", "self_attn_layer_norm", Bias::always);
      linear(l.attn.q, "attn_q", q_rows(), dim, "self_attn.q_proj");
      linear(l.attn.k, "attn_k", kv_rows(), dim, "self_attn.k_proj");
      linear(l.attn.v, "attn_v", kv_rows(), dim, "self_attn.v_proj");
      linear(l.attn.output, "attn_output", dim, q_rows(), "self_attn.out_proj");
      norm_slot(s, l.ffn_norm, "ffn_norm", "final_layer_norm", Bias::always);
      linear(l.ffn.up, "ffn_up", ffn, dim, "fc1");
      linear(l.ffn.down, "ffn_down", dim, ffn, "fc2");
    }
    end_slots(s, "decoder.final_layer_norm", Bias::always);
  }
};

}  // namespace

extern const Architecture kOpt;
const Architecture kOpt{"opt", {"OPTForCausalLM"}, make_model<Opt>};

}  // namespace chaski
