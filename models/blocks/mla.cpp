#include "models/blocks/mla.h"

namespace chaski {

namespace {

// Of the norms of latent rows: the authors' code and transformers use this number, not that of the
// other norms.
constexpr float kLatentEps = 1e-6f;

}  // namespace

void Mla::latent_keys(Keys& k) {
  k.integer(context, "context_length").in_hf("max_position_embeddings").range(1, 1 << 26);
  k.integer(dim, "embedding_length").in_hf("hidden_size").range(2, 1 << 20);
  k.integer(n_layers, "block_count").in_hf("num_hidden_layers").range(1, 4096);
  further_layers_key(k);
  k.integer(heads, "head_count")
      .in_gguf("attention.head_count")
      .in_hf("num_attention_heads")
      .range(1, 4096);
  k.hf_expects({"num_key_value_heads"}, {int64_t{heads}}, "num_attention_heads, ");
  rope_keys(k);
  k["rope_dim"].in_hf("qk_rope_head_dim").hf_otherwise(int64_t{64});
  const auto yarn = [this] { return rope.scaling == RopeScaling::yarn; };
  // GGUF stores a tenth of mscale_all_dim, and nothing of mscale. Programs that read GGUF take
  // the same number for mscale, so the factor on cos and sin is 1.
  k.number(log_multiplier, "rope_log_multiplier")
      .in_gguf("rope.scaling.yarn_log_multiplier")
      .not_in_hf()
      .when(yarn)
      .otherwise([this] { return 0.1 * rope.mscale_all_dim; });
  k["rope_attention_factor"].gguf_otherwise(1.0);
  // Files without these two have the lengths of expanded keys and values in the usual places.
  k.integer(key_length, "key_length").in_gguf("attention.key_length").not_in_hf().optional();
  k.integer(value_length, "value_length").in_gguf("attention.value_length").not_in_hf().optional();
  k.integer(head_dim, "head_dim")
      .in_gguf("attention.key_length_mla")
      .in_hf("qk_nope_head_dim")
      .converted_from_hf_integer([this](int64_t n) { return Given(n + rope.dim); })
      .hf_otherwise([this] { return int64_t{128} + rope.dim; })
      .gguf_otherwise([this] { return key_length; })
      .range(2, 1 << 20);
  k.integer(value_dim, "value_dim")
      .in_gguf("attention.value_length_mla")
      .in_hf("v_head_dim")
      .hf_otherwise(int64_t{128})
      .gguf_otherwise([this] { return value_length; })
      .range(1, 1 << 20);
  k.integer(query_rank, "query_rank")
      .in_gguf("attention.q_lora_rank")
      .in_hf("q_lora_rank")
      .hf_null_is(int64_t{0})
      .hf_otherwise(int64_t{1536})
      .gguf_otherwise(int64_t{0})
      .range(0, 1 << 20);
  k.integer(latent_rank, "latent_rank")
      .in_gguf("attention.kv_lora_rank")
      .in_hf("kv_lora_rank")
      .hf_otherwise(int64_t{512})
      .range(2, 1 << 20);
  k.integer(ffn, "feed_forward_length").in_hf("intermediate_size").range(2, 1 << 22);
  k.integer(vocab, "vocab_size").in_hf("vocab_size").range(2, 1 << 24);
  k.hf_expects({"attention_bias"}, {false});
  k.hf_expects({"head_dim"}, {int64_t{rope.dim}});  // as transformers writes it
  kv_heads = 1;
}

void Mla::v3_keys(Keys& k) {
  rms_norm_key(k);
  expert_keys(k, {"n_routed_experts", "num_local_experts"});
  expert_width_key(k);
  router_keys(k, kSigmoid);
  k["expert_gating_func"].gguf_otherwise(int64_t{kSoftMax});
  k["leading_dense_block_count"].hf_otherwise(int64_t{3});
  k["expert_shared_count"].hf_otherwise(int64_t{1});
  k["expert_weights_norm"].hf_otherwise(true);
  k["expert_weights_scale"].hf_otherwise(2.5);
  k["expert_group_count"].hf_otherwise(int64_t{8});
  k["expert_group_used_count"].hf_otherwise(int64_t{4});
  k.hf_expects({"moe_layer_freq"}, {int64_t{1}});
  k.hf_expects({"scoring_func"}, {"sigmoid"});
  k.hf_expects({"topk_method"}, {"noaux_tc"});
  k.hf_expects({"hidden_act"}, {"silu"});
}

void Mla::agree(const std::string& file) const {
  Experts::agree(file);
  if (plain_dim() < 1)
    fail(Exit::bad_file, "{}: model.head_dim is {}, expected more than rope_dim {}", file, head_dim,
         rope.dim);
  // The matrices of heads are stored one below the other in strips of 16 rows.
  for (const auto& [key, rows] : {std::pair{"latent_rank", latent_rank}, {"value_dim", value_dim}})
    if (rows % kStrip)
      fail(Exit::bad_file, "{}: model.{} is {}, expected a multiple of {}", file, key, rows,
           kStrip);
}

void Mla::attend_slots(Slots& s, int64_t i) {
  latents.resize(layers.size());
  Latent& w = latents[size_t(i)];
  const auto of_queries = [&](int64_t first, int64_t rows) {
    return part_of_heads(heads, head_dim, first, rows);
  };
  const auto queries = [&](const char* name, const char* hf, int64_t cols) {
    const RowOrder plain = of_queries(0, plain_dim()), turns = of_queries(plain_dim(), rope.dim);
    s.add(w.q, "attn_q_plain", heads * plain_dim(), cols).in_hf(hf, plain).in_gguf(name, plain);
    s.add(w.q_rope, "attn_q_rope", int64_t(heads) * rope.dim, cols)
        .in_hf(hf, turns)
        .in_gguf(name, turns);
  };
  if (query_rank > 0) {
    s.add(w.q_a, "attn_q_a", query_rank, dim).in_hf("self_attn.q_a_proj");
    s.add(w.q_a_norm, "attn_q_a_norm", 1, query_rank).in_hf("self_attn.q_a_layernorm");
    queries("attn_q_b", "self_attn.q_b_proj", query_rank);
  } else {
    queries("attn_q", "self_attn.q_proj", dim);
  }
  const int64_t row = latent_rank + rope.dim;
  const RowOrder latent = part(0, row), turned = part(latent_rank, row);
  const char* one = "self_attn.kv_a_proj_with_mqa";
  s.add(w.kv, "attn_kv_a", latent_rank, dim).in_hf(one, latent).in_gguf("attn_kv_a_mqa", latent);
  s.add(w.k_rope, "attn_k_rope", rope.dim, dim).in_hf(one, turned).in_gguf("attn_kv_a_mqa", turned);
  s.add(w.kv_norm, "attn_kv_a_norm", 1, latent_rank).in_hf("self_attn.kv_a_layernorm");
  // Hugging Face folders, and GGUF files until 2025, have K_h and V_h of a head together.
  const int64_t both = plain_dim() + value_dim;
  RowOrder keys = part_of_heads(heads, both, 0, plain_dim());
  keys.turned = true;
  const RowOrder values = part_of_heads(heads, both, plain_dim(), value_dim);
  s.add(w.k_b, "attn_k_b", heads * latent_rank, plain_dim())
      .in_hf("self_attn.kv_b_proj", keys)
      .or_in_gguf("attn_kv_b", keys)
      .planes_in_gguf(heads)
      .as(Role::heads);
  s.add(w.v_b, "attn_v_b", heads * value_dim, latent_rank)
      .in_hf("self_attn.kv_b_proj", values)
      .or_in_gguf("attn_kv_b", values)
      .planes_in_gguf(heads)
      .as(Role::heads);
  s.add(w.output, "attn_output", dim, heads * value_dim).in_hf("self_attn.o_proj");
}

// YaRN's factor on cos and sin reaches only the channels that rotate. The scale makes up for it.
float Mla::latent_scale() const {
  const double scale = 1 / std::sqrt(double(head_dim));
  const double all = log_multiplier > 0 ? 10.0 * log_multiplier : rope.mscale_all_dim;
  if (rope.scaling != RopeScaling::yarn || all == 0 || rope.factor <= 1) return float(scale);
  const double m = 0.1 * all * std::log(rope.factor) + 1;
  return float(scale * m * m);
}

ValueId Mla::attend(Graph& g, ValueId n, size_t i) const {
  const Latent& w = latents[i];
  const auto turned = [&](ValueId of, int n_heads) {
    return turns(int(i)) ? g.rope(of, n_heads, rope.dim, rope) : of;
  };
  const ValueId x = query_rank > 0 ? g.rms_norm(linear(g, n, w.q_a), *w.q_a_norm.weight, kLatentEps)
                                   : n,
                plain = linear(g, x, w.q), turning = linear(g, x, w.q_rope),
                latent = g.rms_norm(linear(g, n, w.kv), *w.kv_norm.weight, kLatentEps),
                k_rope = turned(linear(g, n, w.k_rope), 1);
  const ValueId q =
      g.join(g.head_matmul(plain, *w.k_b.weight, heads), turned(turning, heads), heads);
  const StateId kv = g.state(Paged{1, int(latent_rank) + rope.dim, int(latent_rank), window, true});
  g.kv_write(kv, g.join(latent, k_rope, 1));
  const ValueId y = look(g, q, kv, n, x, i);
  return linear(g, g.head_matmul(y, *w.v_b.weight, heads), w.output);
}

}  // namespace chaski
