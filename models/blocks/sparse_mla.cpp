#include "models/blocks/sparse_mla.h"

#include <algorithm>

namespace chaski {

namespace {

constexpr float kIndexEps = 1e-6f;  // of the layer norm of the indexer's keys

}  // namespace

void SparseMla::sparse_keys(Keys& k) {
  latent_keys(k);
  k["query_rank"].range(2, 1 << 20);
  v3_keys(k);
  k["expert_gating_func"].gguf_otherwise(int64_t{kSigmoid});
  k.integer(index_heads, "indexer_head_count")
      .in_gguf("attention.indexer.head_count")
      .in_hf("index_n_heads")
      .hf_otherwise(int64_t{64})
      .range(2, 4096);
  k.integer(index_dim, "indexer_key_length")
      .in_gguf("attention.indexer.key_length")
      .in_hf("index_head_dim")
      .hf_otherwise(int64_t{128})
      .range(2, 1 << 16);
  k.integer(chosen_cells, "indexer_top_k")
      .in_gguf("attention.indexer.top_k")
      .in_hf("index_topk")
      .hf_otherwise(int64_t{2048})
      .range(1, 1 << 20);
  std::vector<std::string> kinds;
  for (int64_t i = 0; i < n_layers; ++i) kinds.push_back(i < dense_layers ? "dense" : "sparse");
  k.hf_expects({"mlp_layer_types"}, {kinds});
  // The first word is transformers' name since 5.24, the second its former one.
  k.conditions.push_back(
      {{"layer_types"}, {"indexed_attention", "deepseek_sparse_attention"}, true, ""});
  k.hf_expects({"mlp_bias"}, {false});
}

void SparseMla::agree(const std::string& file) const {
  Mla::agree(file);
  if (rope.dim > index_dim)
    fail(Exit::bad_file, "{}: model.indexer_key_length is {}, expected at least rope_dim {}", file,
         index_dim, rope.dim);
  if (!has_indexer(0))
    fail(Exit::bad_file,
         "{}: model.indexer_layers is 0 for layer 0, expected 1: no layer before it chooses cells",
         file);
}

void SparseMla::attend_slots(Slots& s, int64_t i) {
  Mla::attend_slots(s, i);
  indexers.resize(layers.size());
  if (!has_indexer(size_t(i))) return;
  Indexer& w = indexers[size_t(i)];
  const RowOrder order = index_half_split ? half_split(index_dim, rope.dim) : RowOrder{};
  const auto add = [&](Linear& member, const char* name, int64_t rows, int64_t cols,
                       const char* hf) -> Slots::Slot& {
    const std::string ours = std::string("indexer.") + name;
    return s.add(member, ours, rows, cols)
        .in_hf(std::string("self_attn.indexer.") + hf, order)
        .in_gguf(ours, order);
  };
  add(w.q, "attn_q_b", int64_t(index_heads) * index_dim, query_rank, "wq_b");
  add(w.k, "attn_k", index_dim, dim, "wk");
  add(w.k_norm, "k_norm", 1, index_dim, "k_norm").with(Bias::always);
  s.add(w.weights, "indexer.proj", index_heads, dim)
      .in_hf("self_attn.indexer.weights_proj")
      .as(Role::router);
}

ValueId SparseMla::look(Graph& g, ValueId q, StateId kv, ValueId n, ValueId latent_q,
                        size_t i) const {
  if (has_indexer(i)) {
    const Indexer& w = indexers[i];
    const ValueId queries = g.rope(linear(g, latent_q, w.q), index_heads, index_dim, rope),
                  key =
                      g.layer_norm(linear(g, n, w.k), *w.k_norm.weight, *w.k_norm.bias, kIndexEps),
                  weights = g.scale(linear(g, n, w.weights),
                                    float(1 / std::sqrt(double(index_heads) * index_dim)));
    const StateId keys = g.state(Paged{1, index_dim, 0, 0, true});
    g.kv_write(keys, g.rope(key, 1, index_dim, rope));
    g.lightning_index(queries, weights, keys, chosen_cells);
  }
  // The cells of this layer's indexer, or of the last one before.
  const auto index = std::find_if(g.nodes.rbegin(), g.nodes.rend(), [](const Node& node) {
    return std::holds_alternative<LightningIndex>(node.op);
  });
  return g.sparse_attention(q, index->out[0], kv, latent_scale());
}

}  // namespace chaski
