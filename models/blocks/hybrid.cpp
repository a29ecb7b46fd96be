#include "models/blocks/hybrid.h"

#include <algorithm>

namespace chaski {

void Hybrid::mixer_keys(Keys& k, const char* of_taps, const char* expand, const char* of_states,
                        const char* of_steps) {
  k.integer(taps, "ssm.conv_kernel").in_hf(of_taps).range(2, 64).hf_otherwise(int64_t{4});
  k.integer(states, "ssm.state_size").in_hf(of_states).range(2, 1 << 16);
  k.integer(steps, "ssm.time_step_rank").in_hf(of_steps).range(2, 1 << 20);
  k.integer(inner, "ssm.inner_size")
      .in_hf(expand)
      .range(2, 1 << 22)
      .converted_from_hf([this](double times) { return Given(int64_t(times * double(dim))); })
      .hf_otherwise([this] { return Given(2 * dim); });
}

void Hybrid::group_key(Keys& k, const char* of_groups) {
  k.integer(groups, "ssm.group_count")
      .in_hf(of_groups)
      .range(1, 1 << 16)
      .gguf_otherwise(int64_t{1});
}

void Hybrid::expect_head_width(Keys& k, const char* width, const char* others) const {
  if (steps > 0) k.hf_expects({width}, {inner / steps, "auto"}, std::string(others) + ", ");
}

void Hybrid::expect_no_step_limits(Keys& k, std::vector<std::string> limits) {
  k.hf_expects(std::move(limits), {std::vector<double>{0, 1e308}});  // models/import/json_file.cpp
}

void Hybrid::kv_list_key(Keys& k, const char* kinds, const char* attention, const char* other) {
  k.integer(hf_kv_heads, "key_heads")
      .not_in_gguf()
      .in_hf("num_key_value_heads")
      .range(1, 4096)
      .otherwise([this] { return int64_t{heads}; });
  k.flags(attention_layers, "attention_layers", n_layers)
      .not_in_gguf()
      .in_hf(kinds)
      .hf_word(attention, "1")
      .hf_word(other, "0")
      .optional();
  k.integers(kv_list, "head_count_kv", n_layers)
      .in_gguf("attention.head_count_kv")
      .not_in_hf()
      .range(0, 4096)
      .or_one([this](int64_t n) { return Given(std::vector<int64_t>(size_t(n_layers), n)); })
      .otherwise([this] {
        std::vector<int64_t> list(size_t(n_layers), hf_kv_heads);
        for (size_t i = 0; i < attention_layers.size(); ++i) list[i] *= attention_layers[i];
        return Given(list);
      });
}

void Hybrid::agree(const std::string& file) const {
  Experts::agree(file);
  const int64_t most = kv_list.empty() ? 0 : *std::ranges::max_element(kv_list);
  for (size_t i = 0; i < kv_list.size(); ++i)
    if (kv_list[i] > 0 && (kv_list[i] != most || heads % most))
      fail(Exit::bad_file,
           "{}: model.head_count_kv[{}] is {}, expected 0 or the same divisor of head_count {} in "
           "all layers",
           file, i, kv_list[i], heads);
  if (!has_heads || inner == 0) return;
  if (inner % steps)
    fail(Exit::bad_file,
         "{}: model.ssm.time_step_rank is {}, expected a divisor of ssm.inner_size {}", file, steps,
         inner);
  if (steps % groups)
    fail(Exit::bad_file,
         "{}: model.ssm.group_count is {}, expected a divisor of ssm.time_step_rank {}", file,
         groups, steps);
}

void Hybrid::bound(const std::string& file) {
  Experts::bound(file);
  if (!plain_norms) return;
  ones.assign(size_t(std::max(steps, states)), 1.0f);
  const auto view = [&](int64_t n) {
    return Weight{{"ones", Format::f32, 1, n}, reinterpret_cast<const std::byte*>(ones.data())};
  };
  unit_steps = view(steps), unit_states = view(states);
}

void Hybrid::tensors(Slots& s) {
  layers.resize(size_t(n_layers)), mambas.resize(size_t(n_layers));
  if (!kv_list.empty()) kv_heads = int(std::max<int64_t>(1, *std::ranges::max_element(kv_list)));
  token_slot(s, tokens_in_hf);
  for (int64_t i = 0; i < n_layers; ++i) {
    Layer& l = layers[size_t(i)];
    s.layer(i, "layers.");
    s.add(l.attn_norm, "attn_norm", 1, dim).in_hf(hf.norm);
    attend_slots(s, i);
    s.add(l.ffn_norm, ffn_norm_name, 1, dim).in_hf(hf.ffn_norm);
    feed_slots(s, i);
  }
  end_slots(s, hf.last_norm.c_str()).in_gguf(hf.last_norm_in_gguf, {});
}

void Hybrid::attend_slots(Slots& s, int64_t i) {
  attends(i) ? Experts::attend_slots(s, i) : mamba_slots(s, mambas[size_t(i)]);
}
ValueId Hybrid::attend(Graph& g, ValueId n, size_t i) const {
  return attends(int64_t(i)) ? Experts::attend(g, n, i) : mamba(g, n, mambas[i]);
}

void Hybrid::mamba_slots(Slots& s, Mamba& m) const {
  has_heads ? slots_of_2(s, m) : slots_of_1(s, m);
}
ValueId Hybrid::mamba(Graph& g, ValueId n, const Mamba& m) const {
  return has_heads ? mamba_2(g, n, m) : mamba_1(g, n, m);
}

void Hybrid::slots_of_1(Slots& s, Mamba& m) const {
  const auto in = [&](Linear& w, const char* name, int64_t first) {
    const RowOrder order = part(first, 2 * inner);
    s.add(w, name, inner, dim)
        .in_hf(hf.mixer + "in_proj", order)
        .in_gguf("ssm_in", order)
        .with(Bias::maybe);
  };
  in(m.x, "ssm_in_x", 0);
  in(m.z, "ssm_in_z", inner);
  s.add(m.conv, "ssm_conv1d", 1, taps * inner).in_hf(hf.mixer + "conv1d").transpose_of(inner);
  s.add(m.conv_bias, "ssm_conv1d.bias", 1, inner)
      .in_hf(hf.mixer + "conv1d.bias")
      .bare_in_hf()
      .optional();
  const auto low = [&](Linear& w, const char* name, int64_t first, int64_t rows) {
    const RowOrder order = part(first, steps + 2 * states);
    s.add(w, name, rows, inner).in_hf(hf.mixer + "x_proj", order).in_gguf("ssm_x", order);
  };
  low(m.low, "ssm_x_dt", 0, steps);
  low(m.b, "ssm_x_b", steps, states);
  low(m.c, "ssm_x_c", steps + states, states);
  if (normed_steps) {
    s.add(m.low_norm, "ssm_dt_norm", 1, steps).in_hf(hf.mixer + "dt_layernorm");
    s.add(m.b_norm, "ssm_b_norm", 1, states).in_hf(hf.mixer + "b_layernorm");
    s.add(m.c_norm, "ssm_c_norm", 1, states).in_hf(hf.mixer + "c_layernorm");
  }
  s.add(m.dt, "ssm_dt", inner, steps).in_hf(hf.mixer + "dt_proj").with(Bias::always);
  s.add(m.decays, "ssm_a", 1, states * inner)
      .in_hf(hf.mixer + "A_log")
      .bare_in_hf()
      .minus_exp_in_hf()
      .transpose_of(inner);
  s.add(m.direct, "ssm_d", 1, inner).in_hf(hf.mixer + "D").bare_in_hf();
  s.add(m.out, "ssm_out", dim, inner).in_hf(hf.mixer + "out_proj").with(Bias::maybe);
}

void Hybrid::slots_of_2(Slots& s, Mamba& m) const {
  const int64_t whole = inner + xbc() + steps;
  const auto in = [&](Linear& w, const char* name, int64_t first, int64_t rows) {
    const RowOrder order = part(first, whole);
    s.add(w, name, rows, dim).in_hf(hf.mixer + "in_proj", order).in_gguf("ssm_in", order);
  };
  in(m.z, "ssm_in_z", 0, inner);
  in(m.x, "ssm_in_xbc", inner, xbc());
  in(m.dt, "ssm_in_dt", inner + xbc(), steps);
  s.add(m.dt_bias, "ssm_dt.bias", 1, steps).in_hf(hf.mixer + "dt_bias").bare_in_hf();
  s.add(m.conv, "ssm_conv1d", 1, taps * xbc()).in_hf(hf.mixer + "conv1d").transpose_of(xbc());
  s.add(m.conv_bias, "ssm_conv1d.bias", 1, xbc())
      .in_hf(hf.mixer + "conv1d.bias")
      .bare_in_hf()
      .optional();
  s.add(m.decays, "ssm_a", 1, steps)
      .in_hf(hf.mixer + "A_log")
      .bare_in_hf()
      .minus_exp_in_hf()
      .matrix_of(steps);
  s.add(m.direct, "ssm_d", 1, steps).in_hf(hf.mixer + "D").bare_in_hf().matrix_of(steps);
  auto& norm = s.add(m.norm, "ssm_norm", 1, inner).in_hf(hf.mixer + "norm").matrix_of(groups);
  if (!needs_norm) norm.optional();
  s.add(m.out, "ssm_out", dim, inner).in_hf(hf.mixer + "out_proj").with(Bias::maybe);
}

ValueId Hybrid::mamba_1(Graph& g, ValueId n, const Mamba& m) const {
  const ValueId in = linear(g, n, m.x), z = linear(g, n, m.z);
  const ValueId x = g.short_conv(in, *m.conv.weight, m.conv_bias.weight, true);
  const auto normed = [&](ValueId y, const Linear& norm, const Weight& unit) {
    if (plain_norms) return g.rms_norm(y, unit, plain_eps);
    return norm.weight ? rms_norm(g, y, norm) : y;
  };
  const ValueId low = linear(g, x, m.low), b = linear(g, x, m.b), c = linear(g, x, m.c);
  const ValueId dt =
      g.activate(Activation::softplus, linear(g, normed(low, m.low_norm, unit_steps), m.dt));
  const ValueId y =
      g.selective_scan(x, dt, normed(b, m.b_norm, unit_states), normed(c, m.c_norm, unit_states),
                       *m.decays.weight, *m.direct.weight);
  return linear(g, g.mul(g.silu(z), y), m.out);
}

ValueId Hybrid::mamba_2(Graph& g, ValueId n, const Mamba& m) const {
  const ValueId z = linear(g, n, m.z), in = linear(g, n, m.x);
  Linear step = m.dt;
  step.bias = m.dt_bias.weight;
  const ValueId dt = g.activate(Activation::softplus, linear(g, n, step));
  const ValueId x = g.short_conv(in, *m.conv.weight, m.conv_bias.weight, true);
  const ValueId y = g.state_scan(x, dt, scan(), *m.decays.weight, *m.direct.weight);
  return linear(g, gated_norm(g, y, z, m), m.out);
}

ValueId Hybrid::gated_norm(Graph& g, ValueId y, ValueId z, const Mamba& m) const {
  y = g.mul(g.silu(z), y);
  return m.norm.weight ? g.rms_norm(y, *m.norm.weight, eps, int(groups)) : y;
}

}  // namespace chaski
