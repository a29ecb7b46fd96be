// BLOOM: ALiBi positions, a norm after the token table, layer norms, gelu feed-forward, biases
// everywhere.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class Bloom : public Gpt {
  void keys(Keys& k) override {
    size_keys(k);
    k["context_length"].in_hf("seq_length").hf_otherwise(int64_t{2048});
    key_names(k, "embedding_length", {"hidden_size", "n_embed"}, dim);
    key_names(k, "block_count", {"n_layer", "num_hidden_layers"}, n_layers);
    key_names(k, "head_count", {"n_head", "num_attention_heads"}, heads);
    k["head_count_kv"].not_in_hf();
    k["feed_forward_length"].in_hf("n_inner").hf_otherwise([this] { return 4 * dim; });
    layer_norm_key(k);
    alibi_key(k);
    k.hf_expects({"apply_residual_connection_post_layernorm"}, {false});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    s.hf_prefix = "transformer.";
    embedding_slots(s, "word_embeddings");
    norm_slot(s, token_embd_norm, "token_embd_norm", "word_embeddings_layernorm", Bias::always);
    layer_slots(s,
                {"h.", "input_layernorm", "self_attention.query_key_value", "self_attention.dense",
                 "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
                heads, Bias::always);
    end_slots(s, "ln_f", Bias::always);
  }
};

}  // namespace

extern const Architecture kBloom;
const Architecture kBloom{"bloom", {"BloomForCausalLM"}, make_model<Bloom>};

}  // namespace chaski
