#include "models/blocks/layer_heads.h"

namespace chaski {

void LayerHeads::layer_keys(Keys& k, int64_t least) {
  const auto in_all = [this](int64_t n) {
    return Given(std::vector<int64_t>(size_t(n_layers), n));
  };
  k.integer(context, "context_length").in_hf("max_position_embeddings").range(1, 1 << 26);
  k.integer(dim, "embedding_length").in_hf("hidden_size").range(2, 1 << 20);
  k.integers(layer_heads, "head_count", n_layers)
      .in_gguf("attention.head_count")
      .in_hf("num_attention_heads")
      .range(least, 4096)
      .or_one(in_all);
  k.integers(layer_kv_heads, "head_count_kv", n_layers)
      .in_gguf("attention.head_count_kv")
      .in_hf("num_key_value_heads")
      .range(least, 4096)
      .or_one(in_all)
      .otherwise([this] { return layer_heads; });
  k.integer(head_dim, "head_dim")
      .in_gguf("attention.key_length")
      .in_hf("head_dim")
      .range(1, 1 << 20);
  k.integers(layer_ffn, "feed_forward_length", n_layers)
      .in_hf("intermediate_size")
      .range(least == 0 ? 0 : 2, 1 << 22)
      .or_one(in_all);
  k.integer(vocab, "vocab_size").in_hf("vocab_size").range(2, 1 << 24);
}

void LayerHeads::agree(const std::string& file) const {
  Decoder::agree(file);
  for (size_t i = 0; i < layer_heads.size(); ++i) {
    if (attends(i) && layer_heads[i] % layer_kv_heads[i])
      fail(Exit::bad_file, "{}: model.head_count_kv[{}] is {}, expected a divisor of head_count {}",
           file, i, layer_kv_heads[i], layer_heads[i]);
    if (layer_heads[i] == 0 && layer_kv_heads[i] > 0)
      fail(Exit::bad_file, "{}: model.head_count_kv[{}] is {}, expected 0 as head_count", file, i,
           layer_kv_heads[i]);
    if (layer_ffn[i] == 1)
      fail(Exit::bad_file, "{}: model.feed_forward_length[{}] is 1, expected 0 or at least 2", file,
           i);
  }
}

ValueId LayerHeads::mixed(Graph& g, ValueId n, const AttentionWeights& w, size_t layer) const {
  if (!attends(layer)) return linear(g, n, w.output);
  const int of_q = int(layer_heads[layer]), of_k = int(layer_kv_heads[layer]);
  const auto turned = [&](const Linear& part, const Linear& norm, int of) {
    ValueId y = linear(g, n, part);
    if (norm.weight) y = g.rms_norm(y, *norm.weight, eps, of);
    return g.rope(y, of, head_dim, rope);
  };
  const ValueId q = turned(w.q, w.q_norm, of_q), k = turned(w.k, w.k_norm, of_k);
  const StateId kv = g.state(Paged{of_k, head_dim, head_dim, 0});
  g.kv_write(kv, k, linear(g, n, w.v));
  return linear(g, g.attention(q, kv, 1 / std::sqrt(float(head_dim))), w.output);
}

void LayerHeads::build(Graph& g) const {
  ValueId x = g.get_rows(*token_embd.weight);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& l = layers[i];
    if (layer_heads[i] > 0) x = g.add(x, mixed(g, rms_norm(g, x, l.attn_norm), l.attn, i));
    if (layer_ffn[i] > 0) x = g.add(x, gated(g, rms_norm(g, x, l.ffn_norm), l.ffn));
  }
  logits(g, rms_norm(g, g.take_outputs(x), output_norm));
}

}  // namespace chaski
