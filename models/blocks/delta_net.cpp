#include "models/blocks/delta_net.h"

namespace chaski {

void DeltaNet::delta_keys(Keys& k) {
  k.integer(interval, "full_attention_interval")
      .in_hf("full_attention_interval")
      .range(1, 4096)
      .otherwise(int64_t{4});
  k.integer(taps, "ssm.conv_kernel")
      .in_hf("linear_conv_kernel_dim")
      .range(2, 64)
      .hf_otherwise(int64_t{4});
  k.integer(k_dim, "ssm.state_size")
      .in_hf("linear_key_head_dim")
      .range(1, 1 << 16)
      .hf_otherwise(int64_t{128});
  k.integer(k_heads, "ssm.group_count")
      .in_hf("linear_num_key_heads")
      .range(1, 1 << 16)
      .hf_otherwise(int64_t{16});
  k.integer(v_heads, "ssm.time_step_rank")
      .in_hf("linear_num_value_heads")
      .range(2, 1 << 16)
      .hf_otherwise(int64_t{32});
  k.integer(inner, "ssm.inner_size")
      .in_hf("linear_value_head_dim")
      .range(2, 1 << 22)
      .converted_from_hf([this](double width) { return Given(int64_t(width) * v_heads); })
      .hf_otherwise([this] { return Given(128 * v_heads); });
  std::vector<std::string> kinds;
  for (int64_t i = 0; i < n_layers; ++i)
    kinds.push_back(attends(i) ? "full_attention" : "linear_attention");
  k.hf_expects({"layer_types"}, {kinds});
  k.hf_expects({"hidden_act"}, {"silu"});
  k.hf_tensors("attention_bias", attention_biases());
}

void DeltaNet::agree(const std::string& file) const {
  Experts::agree(file);
  if (v_heads % k_heads)
    fail(Exit::bad_file,
         "{}: model.ssm.group_count is {}, expected a divisor of ssm.time_step_rank {}", file,
         k_heads, v_heads);
  if (inner % v_heads)
    fail(Exit::bad_file,
         "{}: model.ssm.time_step_rank is {}, expected a divisor of ssm.inner_size {}", file,
         v_heads, inner);
}

void DeltaNet::tensors(Slots& s) {
  s.hf_other_parts = {"model.visual.", "mtp.", "model.mtp."};
  if (has_further_layers) s.further_layers = n_layers;
  token_slot(s);
  for (int64_t i = 0; i < n_layers; ++i) layer_slots(s, i);
  end_slots(s).less_one_in_hf();
}

void DeltaNet::layer_slots(Slots& s, int64_t i) {
  layers.resize(size_t(n_layers)), deltas.resize(size_t(n_layers)), gates.resize(size_t(n_layers));
  Layer& l = layers[size_t(i)];
  s.layer(i, "layers.");
  s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm").less_one_in_hf();
  attend_slots(s, i);
  s.add(l.ffn_norm, "post_attention_norm", 1, dim)
      .in_hf("post_attention_layernorm")
      .less_one_in_hf();
  feed_slots(s, i);
}

void DeltaNet::next_slots(Slots& s) {
  s.hf_prefix = "mtp.";
  s.add(next.join, "nextn.eh_proj", dim, 2 * dim).in_hf("fc");
  s.add(next.token_norm, "nextn.enorm", 1, dim).in_hf("pre_fc_norm_embedding").less_one_in_hf();
  s.add(next.row_norm, "nextn.hnorm", 1, dim).in_hf("pre_fc_norm_hidden").less_one_in_hf();
  layer_slots(s, 0);
  s.after_layers();
  s.add(next.norm, "nextn.shared_head_norm", 1, dim).in_hf("norm").less_one_in_hf();
}

ValueId DeltaNet::next_row(Graph& g, ValueId token, ValueId row) const {
  token = rms_norm(g, token, next.token_norm), row = rms_norm(g, row, next.row_norm);
  const ValueId x = layer(g, linear(g, g.join(token, row, 1), next.join), 0);
  return rms_norm(g, g.take_outputs(x), next.norm);
}

void DeltaNet::attend_slots(Slots& s, int64_t i) {
  if (!attends(i)) {
    Delta& d = deltas[size_t(i)];
    delta_in_slots(s, d);
    const auto conv = [&](Linear& w, const char* name, int64_t first, int64_t rows) {
      auto& slot = s.add(w, name, 1, taps * rows);
      slot.in_hf("linear_attn.conv1d").in_gguf("ssm_conv1d", {});
      slot.transpose_of(rows, first, qkv_rows());
    };
    conv(d.q_conv, "ssm_conv1d_q", 0, key_rows());
    conv(d.k_conv, "ssm_conv1d_k", key_rows(), key_rows());
    conv(d.v_conv, "ssm_conv1d_v", 2 * key_rows(), inner);
    s.add(d.dt_bias, "ssm_dt.bias", 1, v_heads).in_hf("linear_attn.dt_bias").bare_in_hf();
    s.add(d.decays, "ssm_a", 1, v_heads).in_hf("linear_attn.A_log").bare_in_hf().minus_exp_in_hf();
    s.add(d.norm, "ssm_norm", 1, v_dim()).in_hf("linear_attn.norm");
    s.add(d.out, "ssm_out", dim, inner).in_hf("linear_attn.out_proj");
    return;
  }
  AttentionWeights& w = layers[size_t(i)].attn;
  // Each head's queries, then its gates.
  RowOrder q = part_of_heads(heads, 2 * head_dim, 0, head_dim);
  const RowOrder gate = part_of_heads(heads, 2 * head_dim, head_dim, head_dim);
  q.head = head_dim, q.rotated = rope.dim;
  s.add(w.q, "attn_q", q_rows(), dim).in_hf("self_attn.q_proj", q).in_gguf(q).with(Bias::maybe);
  s.add(gates[size_t(i)], "attn_q_gate", q_rows(), dim)
      .in_hf("self_attn.q_proj", gate)
      .in_gguf("attn_q", gate)
      .with(Bias::maybe);
  s.add(w.k, "attn_k", kv_rows(), dim)
      .in_hf("self_attn.k_proj", halves())
      .in_gguf(halves())
      .with(Bias::maybe);
  s.add(w.v, "attn_v", kv_rows(), dim).in_hf("self_attn.v_proj").with(Bias::maybe);
  s.add(w.output, "attn_output", dim, q_rows()).in_hf("self_attn.o_proj").with(Bias::maybe);
  for (Slots::Slot* norm : head_norm_slots(s, w, halves())) norm->less_one_in_hf();
}

ValueId DeltaNet::attend(Graph& g, ValueId n, size_t i) const {
  if (!attends(int64_t(i))) return remember(g, n, deltas[i]);
  const AttentionWeights& w = layers[i].attn;
  const ValueId q = linear(g, n, w.q), k = linear(g, n, w.k), v = linear(g, n, w.v),
                gate = linear(g, n, gates[i]);
  const ValueId y = attention_of(g, g.rms_norm(q, *w.q_norm.weight, eps, heads),
                                 g.rms_norm(k, *w.k_norm.weight, eps, kv_heads), v, int(i));
  return linear(g, g.mul(y, g.activate(Activation::sigmoid, gate)), w.output);
}

ValueId DeltaNet::remember(Graph& g, ValueId n, const Delta& d) const {
  const ValueId q = linear(g, n, d.q), k = linear(g, n, d.k), v = linear(g, n, d.v),
                z = linear(g, n, d.z), b = linear(g, n, d.b);
  Linear step = d.a;
  step.bias = d.dt_bias.weight;
  const ValueId dt = g.activate(Activation::softplus, linear(g, n, step)),
                beta = g.activate(Activation::sigmoid, b);
  const auto convolved = [&](ValueId x, const Linear& w) {
    return g.short_conv(x, *w.weight, nullptr, true);
  };
  const DeltaRule rule{0, int(v_heads), int(k_heads), int(k_dim), int(v_dim()), tiled};
  const ValueId y = g.delta_rule(convolved(q, d.q_conv), convolved(k, d.k_conv),
                                 convolved(v, d.v_conv), dt, beta, rule, *d.decays.weight);
  const ValueId normed = g.rms_norm(y, *d.norm.weight, eps, int(v_heads));
  return linear(g, g.mul(g.silu(z), normed), d.out);
}

}  // namespace chaski
