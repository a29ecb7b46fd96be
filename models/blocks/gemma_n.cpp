#include "models/blocks/gemma_n.h"

#include <algorithm>

namespace chaski {

void GemmaN::layer_keys(Keys& k, int64_t period, std::function<Given(int64_t)> kv_heads_in_hf,
                        std::function<Given(int64_t)> ffn_in_hf) {
  k.integer(context, "context_length").in_hf("max_position_embeddings").range(1, 1 << 26);
  k.integer(dim, "embedding_length").in_hf("hidden_size").range(2, 1 << 20);
  k.integer(n_layers, "block_count").in_hf("num_hidden_layers").range(1, 4096);
  k.integer(vocab, "vocab_size").in_hf("vocab_size").range(2, 1 << 24);
  window_key(k);
  window_pattern_key(k, period);
  k.integer(readers, "kv_readers")
      .in_gguf("attention.shared_kv_layers")
      .in_hf("num_kv_shared_layers")
      .range(0, 4095)
      .otherwise(int64_t{0});
  k.integer(heads, "head_count")
      .in_gguf("attention.head_count")
      .in_hf("num_attention_heads")
      .range(1, 4096);
  k.integers(layer_kv_heads, "head_count_kv", n_layers)
      .in_gguf("attention.head_count_kv")
      .in_hf("num_key_value_heads")
      .range(1, 4096)
      .or_one(std::move(kv_heads_in_hf));
  k.integers(layer_ffn, "feed_forward_length", n_layers)
      .in_hf("intermediate_size")
      .range(2, 1 << 22)
      .or_one(std::move(ffn_in_hf));
  k.integer(head_dim, "head_dim")
      .in_gguf("attention.key_length")
      .in_hf("head_dim")
      .range(2, 1 << 20);
  k.integer(window_head_dim, "head_dim_of_windows")
      .in_gguf("attention.key_length_swa")
      .in_hf("head_dim")
      .range(2, 1 << 20)
      .otherwise([this] { return int64_t{head_dim}; });
  k.integer(own_width, "layer_input_length")
      .in_gguf("embedding_length_per_layer_input")
      .in_hf("hidden_size_per_layer_input")
      .range(0, 1 << 20)
      .otherwise(int64_t{0});
  k.integer(own_vocab, "layer_input_vocab_size")
      .not_in_gguf()
      .in_hf("vocab_size_per_layer_input")
      .range(1, 1 << 24)
      .otherwise([this] { return vocab; });
  k.integer(window_rope_dim, "rope_dim_of_windows")
      .in_gguf("rope.dimension_count_swa")
      .range(2, 1 << 20)
      .otherwise([this] { return int64_t{window_head_dim}; });
  k.number(window_theta, "rope_theta_of_windows")
      .in_gguf("rope.freq_base_swa")
      .in_hf({"rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq"})
      .otherwise(10000.0)
      .positive();
  partial_rope_keys(k, 1.0);
  k["rope_dim"].not_in_hf();
  k["rope_theta"].otherwise(1e6);
  rms_norm_key(k);
  k.number(logit_cap, "logit_soft_cap")
      .in_gguf("final_logit_softcapping")
      .in_hf("final_logit_softcapping")
      .optional();
  k.hf_expects({"rope_parameters.sliding_attention.rope_type"}, {"default"});
  // The new form has an object for each kind of layer.
  for (const char* place : {"rope_parameters.rope_type", "rope_parameters.type",
                            "rope_parameters.rope_theta", "rope_scaling.type"})
    k.hf_expects({place}, {});
  k.hf_expects({"hidden_activation"}, {"gelu_pytorch_tanh"});
  k.hf_expects({"attention_bias"}, {false});
  k.hf_tied = true;
}

void GemmaN::agree(const std::string& file) const {
  Decoder::agree(file);
  for (size_t i = 0; i < layer_kv_heads.size(); ++i)
    if (heads % layer_kv_heads[i])
      fail(Exit::bad_file, "{}: model.head_count_kv[{}] is {}, expected a divisor of head_count {}",
           file, i, layer_kv_heads[i], heads);
  if (window_rope_dim > window_head_dim || window_rope_dim % 2)
    fail(Exit::bad_file,
         "{}: model.rope_dim_of_windows is {}, expected an even number of at most "
         "head_dim_of_windows {}",
         file, window_rope_dim, window_head_dim);
  for (int64_t i = 0; i < n_layers; ++i)
    if (source_of(i) < 0)
      fail(Exit::bad_file,
           "{}: model.kv_readers is {}, expected fewer: layer {} has no earlier layer of its kind "
           "to read",
           file, readers, i);
}

int64_t GemmaN::source_of(int64_t layer) const {
  if (keeps(layer)) return layer;
  int64_t source = n_layers - readers - 1;
  while (source >= 0 && has_window(int(source)) != has_window(int(layer))) --source;
  return source;
}

RopeSpec GemmaN::rope_of(int layer) const {
  if (!has_window(layer)) return rope;
  RopeSpec windowed_rope;  // without scaling
  windowed_rope.dim = window_rope_dim, windowed_rope.theta = window_theta;
  return windowed_rope;
}

void GemmaN::bound(const std::string& file) {
  Decoder::bound(file);
  one_.assign(size_t(std::max(head_dim, window_head_dim)), 1.0f);
  const auto* data = reinterpret_cast<const std::byte*>(one_.data());
  ones_ = {{"ones_of_values", Format::f32, 1, head_dim}, data};
  window_ones_ = {{"ones_of_near_values", Format::f32, 1, window_head_dim}, data};
}

void GemmaN::table_slots(Slots& s) {
  s.hf_prefix = "model.";
  s.add(token_embd, "token_embd", vocab, dim).in_hf("embed_tokens").as(Role::token_table);
  if (own_width == 0) return;
  const int64_t all = n_layers * own_width;
  s.add(table_, "per_layer_token_embd", vocab, all)
      .in_hf("embed_tokens_per_layer")
      .rows_in_hf(own_vocab)
      .as(Role::lookup);
  s.add(projection_, "per_layer_model_proj", all, dim).in_hf("per_layer_model_projection").small();
  s.add(projection_norm_, "per_layer_proj_norm", 1, own_width).in_hf("per_layer_projection_norm");
}

void GemmaN::layer_slots(Slots& s, Layer& l, int64_t i) {
  const int64_t d = head_dim_of(i), kv = layer_kv_heads[size_t(i)] * d,
                inner = layer_ffn[size_t(i)];
  const RowOrder order = half_split(d, has_window(int(i)) ? window_rope_dim : rope.dim);
  const auto turned = [&](Linear& member, const char* name, int64_t rows, int64_t cols,
                          const char* hf) {
    s.add(member, name, rows, cols).in_hf(hf, order).in_gguf(order);
  };
  s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
  turned(l.attn.q, "attn_q", heads * d, dim, "self_attn.q_proj");
  turned(l.attn.q_norm, "attn_q_norm", 1, d, "self_attn.q_norm");
  if (keeps(i)) {
    turned(l.attn.k, "attn_k", kv, dim, "self_attn.k_proj");
    turned(l.attn.k_norm, "attn_k_norm", 1, d, "self_attn.k_norm");
    auto& v = s.add(l.attn.v, "attn_v", kv, dim).in_hf("self_attn.v_proj");
    if (k_may_be_v && !has_window(int(i))) v.or_in_gguf("attn_k");
    if (k_is_v && !has_window(int(i))) v.in_hf("self_attn.k_proj");
  } else {  // files may still have these tensors
    for (const char* name : {"k_proj", "v_proj", "k_norm"})
      s.hf_unread.push_back(fmt::format("layers.{}.self_attn.{}.weight", i, name));
    for (const char* name : {"attn_k", "attn_v", "attn_k_norm"})
      s.gguf_unread.push_back(fmt::format("layer.{}.{}", i, name));
  }
  s.add(l.attn.output, "attn_output", dim, heads * d).in_hf("self_attn.o_proj");
  s.add(l.attn_outer_norm, "post_attention_norm", 1, dim).in_hf("post_attention_layernorm");
  s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("pre_feedforward_layernorm");
  s.add(l.ffn.gate, "ffn_gate", inner, dim).in_hf("mlp.gate_proj");
  s.add(l.ffn.up, "ffn_up", inner, dim).in_hf("mlp.up_proj");
  s.add(l.ffn.down, "ffn_down", dim, inner).in_hf("mlp.down_proj");
  s.add(l.ffn_outer_norm, "post_ffw_norm", 1, dim).in_hf("post_feedforward_layernorm");
  if (own_width == 0) return;
  s.add(l.own_gate, "inp_gate", own_width, dim).in_hf("per_layer_input_gate");
  s.add(l.own_up, "proj", dim, own_width).in_hf("per_layer_projection");
  s.add(l.own_norm, "post_norm", 1, dim).in_hf("post_per_layer_input_norm");
}

void GemmaN::head_slots(Slots& s) {
  s.after_layers();
  s.add(output_norm, "output_norm", 1, dim).in_hf("norm");
  s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
}

ValueId GemmaN::attend(Graph& g, ValueId n, const Layer& l, int layer,
                       std::vector<StateId>& states) const {
  const int d = head_dim_of(layer);
  const RopeSpec spec = rope_of(layer);
  const auto turned = [&](ValueId x, const Linear& norm, int of) {
    return g.rope(g.rms_norm(x, *norm.weight, eps, of), of, d, spec);
  };
  const ValueId q = turned(linear(g, n, l.attn.q), l.attn.q_norm, heads);
  if (keeps(layer)) {
    const int kv = int(layer_kv_heads[size_t(layer)]);
    states.push_back(g.state(Paged{kv, d, d, has_window(layer) ? window : 0}));
    g.kv_write(
        states.back(), turned(linear(g, n, l.attn.k), l.attn.k_norm, kv),
        g.rms_norm(linear(g, n, l.attn.v), has_window(layer) ? window_ones_ : ones_, eps, kv));
  }
  return linear(g, g.attention(q, states[size_t(source_of(layer))], 1.0f), l.attn.output);
}

ValueId GemmaN::own_inputs(Graph& g, ValueId x) const {
  if (own_width == 0) return kNone;
  const ValueId row = g.scale(g.get_rows(*table_.weight), std::sqrt(float(own_width)));
  const ValueId made = g.scale(linear(g, x, projection_), 1 / std::sqrt(float(dim)));
  const ValueId normed = g.rms_norm(made, *projection_norm_.weight, eps, int(n_layers));
  return g.scale(g.add(normed, row), std::sqrt(0.5f));
}

ValueId GemmaN::own_input(Graph& g, ValueId x, const Layer& l, int layer, ValueId inputs) const {
  const ValueId gate = g.activate(Activation::gelu, linear(g, x, l.own_gate));
  const ValueId own = g.columns(inputs, layer * own_width, own_width);
  return rms_norm(g, linear(g, g.mul(gate, own), l.own_up), l.own_norm);
}

}  // namespace chaski
