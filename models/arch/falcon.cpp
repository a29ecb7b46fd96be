// Falcon 1 and 2 (7B, 11B, 40B, 180B): gelu feed-forward parallel to the attention, after the same
// layer norm or each after its own; rotary positions; one key head for all or for each group.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Falcon : public Decoder {
  struct Layer {
    // One norm for attention and feed-forward, or norm for the feed-forward and own_norm for
    // attention.
    Linear norm, own_norm;
    AttentionWeights attn;
    PlainWeights ffn;
  };
  std::vector<Layer> layers;
  bool grouped = false, one_key_head = true;  // as in config.json
  int norms = 1;

  void keys(Keys& k) override {
    k.flag(grouped, "new_decoder_architecture")
        .in_hf("new_decoder_architecture")
        .not_in_gguf()
        .otherwise(false);
    k.flag(one_key_head, "multi_query").in_hf("multi_query").not_in_gguf().otherwise(true);
    k.integer(norms, "parallel_norms")
        .in_hf("num_ln_in_parallel_attn")
        .not_in_gguf()
        .range(1, 2)
        .otherwise([this] { return int64_t{grouped ? 2 : 1}; });
    size_keys(k);
    k["context_length"].hf_otherwise(int64_t{2048});
    key_names(k, "embedding_length", {"hidden_size", "n_embed"}, dim);
    k["block_count"].in_hf({"num_hidden_layers", "n_layer"});
    k["head_count"].in_hf({"num_attention_heads", "n_head"});
    // The key is only valid in the newer models, although the older ones have it too.
    k["head_count_kv"]
        .in_hf({"num_kv_heads", "n_head_kv"})
        .converted_from_hf([this](double n) {
          return Given(int64_t(grouped ? n : one_key_head ? 1 : heads));
        })
        .hf_otherwise([this] { return int64_t{one_key_head && !grouped ? 1 : heads}; });
    k["feed_forward_length"].in_hf("ffn_hidden_size").hf_otherwise([this] { return 4 * dim; });
    rope_keys(k);
    layer_norm_key(k);
    activation_key(k, "activation", "gelu");
    k.hf_expects({"alibi"}, {false});
    k.hf_expects({"parallel_attn"}, {true});
    k.hf_tensors("bias", {".query_key_value.bias", ".dense.bias", ".dense_h_to_4h.bias",
                          ".dense_4h_to_h.bias"});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.matmul_biases_in_gguf = false;
    s.add(token_embd, "token_embd", vocab, dim).in_hf("word_embeddings").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "h.");
      s.add(l.norm, "attn_norm", 1, dim)
          .in_hf(norms == 2 ? "ln_mlp" : "input_layernorm")
          .with(Bias::always);
      // GGUF files do not say how many norms a layer has.
      auto& own = s.add(l.own_norm, "attn_norm_2", 1, dim).in_hf("ln_attn").with(Bias::always);
      if (norms == 1) own.optional();
      fused_slots(s, l.attn, "self_attention.query_key_value", kv_heads, Bias::maybe, true);
      s.add(l.attn.output, "attn_output", dim, q_rows())
          .in_hf("self_attention.dense")
          .with(Bias::maybe);
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.dense_h_to_4h").with(Bias::maybe);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.dense_4h_to_h").with(Bias::maybe);
    }
    end_slots(s, "ln_f", Bias::always);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId n = layer_norm(g, x, l.norm);
      const ValueId own = l.own_norm.weight ? layer_norm(g, x, l.own_norm) : n;
      x = g.add(x, attention(g, own, l.attn, int(i)));
      x = g.add(x, plain(g, n, l.ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kFalcon;
const Architecture kFalcon{"falcon", {"FalconForCausalLM", "RWForCausalLM"}, make_model<Falcon>};

}  // namespace chaski
