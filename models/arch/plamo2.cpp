// PLaMo 2 and 2.1 (Preferred Networks 2025): the scan of Mamba 2, with attention in every other
// layer, which has a window. Time steps, B and C are made and normed as in Jamba. Each part has a
// norm before it and one after it.
#include <algorithm>
#include <cmath>

#include "models/blocks/hybrid.h"

namespace chaski {

namespace {

class Plamo2 : public Hybrid {
 public:
  void keys(Keys& k) override {
    size_keys(k);
    std::erase_if(k.list, [](const Key& key) { return key.ours.starts_with("model.head_count"); });
    k["head_dim"].in_hf("hidden_size_per_head").otherwise(int64_t{128});
    head_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    // The norms of heads always have 1e-6 there.
    k.hf_expects({"rms_norm_eps"}, {1e-6});
    window_key(k);
    // A token sees the window and itself.
    k["sliding_window"]
        .in_hf("attention_window_size")
        .required_in_hf()
        .converted_from_hf_integer(
            [](int64_t before) { return Given(before < 0 ? before : before + 1); });
    k.hf_expects({"full_attention_idx"}, {std::vector<int64_t>{}});
    mixer_keys(k, "mamba_d_conv", "", "mamba_d_state", "mamba_num_heads");
    k["ssm.inner_size"].not_in_hf().otherwise([this] { return Given(steps * head_dim); });
    k.integer(no_groups, "ssm.group_count").not_in_hf().range(0, 0).otherwise(int64_t{0});
    k.hf_expects({"linear_type"}, {"normal"});
    k.hf_tied = true;
  }

  void agree(const std::string& file) const override {
    Hybrid::agree(file);
    for (size_t i = 0; i < head_list.size(); ++i)
      if (attends(int64_t(i)) && head_list[i] != heads)
        fail(Exit::bad_file, "{}: model.head_count[{}] is {}, expected {}, that of other layers",
             file, i, head_list[i], heads);
    for (size_t i = 0; i < kv_list.size(); ++i)
      if (attends(int64_t(i)) && kv_list[i] != kv_heads)
        fail(Exit::bad_file, "{}: model.head_count_kv[{}] is {}, expected {}, that of other layers",
             file, i, kv_list[i], kv_heads);
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers)), mambas.resize(size_t(n_layers)),
        after.resize(size_t(n_layers));
    token_slot(s);
    // Hugging Face files store the weight minus `less`.
    const auto norm = [&](Linear& w, const char* name, const char* hf,
                          double less) -> Slots::Slot& {
      return s.add(w, name, 1, dim).in_hf(hf).less_in_hf(float(less));
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.layers.");
      norm(l.attn_norm, "attn_norm", "pre_mixer_norm", 1);
      attend_slots(s, i);
      norm(after[size_t(i)].mixer, "post_attention_norm", "post_mixer_norm", 1.0 / 5)
          .bare_in_gguf();
      norm(l.ffn_norm, "ffn_norm", "pre_mlp_norm", 1);
      gate_up_slots(s, l.ffn);
      norm(after[size_t(i)].feed, "post_ffw_norm", "post_mlp_norm", std::pow(5.0, -1.5))
          .bare_in_gguf();
    }
    end_slots(s).less_in_hf(1);
  }

  void build(Graph& g) const override {
    ValueId x = embedding(g);
    for (size_t i = 0; i < layers.size(); ++i) {
      const ValueId y = attend(g, rms_norm(g, x, layers[i].attn_norm), i);
      x = g.add(x, rms_norm(g, y, after[i].mixer));
      const ValueId z = gated(g, rms_norm(g, x, layers[i].ffn_norm), layers[i].ffn);
      x = g.add(x, rms_norm(g, z, after[i].feed));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }

 private:
  struct OuterNorms {
    Linear mixer, feed;
  };
  std::vector<OuterNorms> after;
  std::vector<int64_t> head_list;  // by layer: query heads, which are used where it attends
  int64_t period = 2, no_groups = 0;
  int hf_heads = 0, hf_kv_heads = 0;  // of a layer with attention

  void head_keys(Keys& k) {
    k.integer(period, "attention_period").not_in_gguf().in_hf("mamba_step").range(2, 8192);
    k["attention_period"].required_in_hf().optional();
    k.hf_expects({"mamba_enabled"}, {true});
    const auto list_key = [&](std::vector<int64_t>& list, int& most, int& in_config,
                              const std::string& name, const char* in_hf) {
      k.integer(in_config, "attending_" + name).not_in_gguf().in_hf(in_hf).range(1, 4096);
      k["attending_" + name].required_in_hf().optional();
      k.integers(list, name, n_layers)
          .in_gguf("attention." + name)
          .not_in_hf()
          .range(0, 4096)
          .otherwise([this, &in_config] {
            std::vector<int64_t> all;
            const bool few = n_layers <= period / 2;  // then the last layer attends
            for (int64_t i = 0; i < n_layers; ++i)
              all.push_back((few ? i == n_layers - 1 : i % period == period / 2) ? in_config : 0);
            return Given(all);
          });
      k.integer(most, "most_" + name).not_in_gguf().not_in_hf().range(1, 4096).otherwise([&list] {
        return std::max<int64_t>(1, *std::ranges::max_element(list));
      });
    };
    list_key(head_list, heads, hf_heads, "head_count", "num_attention_heads");
    k["head_count"].or_one(
        [this](int64_t n) { return Given(std::vector<int64_t>(size_t(n_layers), n)); });
    list_key(kv_list, kv_heads, hf_kv_heads, "head_count_kv", "num_key_value_heads");
  }

  int64_t rank() const { return std::max<int64_t>(64, dim / 16); }

  void attend_slots(Slots& s, int64_t i) override {
    if (!attends(i)) return mixer_slots(s, mambas[size_t(i)]);
    AttentionWeights& w = layers[size_t(i)].attn;
    fused_slots(s, w, "mixer.qkv_proj", 1, Bias::none, true);
    const auto norm = [&](Linear& member, const char* name, const char* hf, int of) {
      s.add(member, name, 1, of * head_dim)
          .in_hf(hf, halves())
          .bare_in_hf()
          .in_gguf(halves())
          .matrix_of(of);
    };
    norm(w.q_norm, "attn_q_norm", "mixer.q_weight", heads);
    norm(w.k_norm, "attn_k_norm", "mixer.k_weight", kv_heads);
    s.add(w.output, "attn_output", dim, q_rows()).in_hf("mixer.o_proj");
  }

  void mixer_slots(Slots& s, Mamba& m) const {
    const int64_t wide = inner / steps, made = rank() + 2 * states;
    const auto add = [&](Linear& w, const char* name, int64_t rows, int64_t cols, const char* gguf,
                         const char* hf, RowOrder order) {
      s.add(w, name, rows, cols).in_hf(std::string("mixer.") + hf, order).in_gguf(gguf, order);
    };
    const auto half = [&](int64_t first) { return part_of_heads(steps, 2 * wide, first, wide); };
    add(m.z, "ssm_in_z", inner, dim, "ssm_in", "in_proj", half(0));
    add(m.x, "ssm_in_x", inner, dim, "ssm_in", "in_proj", half(wide));
    s.add(m.conv, "ssm_conv1d", 1, taps * inner).in_hf("mixer.conv1d").transpose_of(inner);
    add(m.b, "ssm_x_b", states, inner, "ssm_x", "bcdt_proj", part(0, made));
    add(m.c, "ssm_x_c", states, inner, "ssm_x", "bcdt_proj", part(states, made));
    add(m.low, "ssm_x_dt", rank(), inner, "ssm_x", "bcdt_proj", part(2 * states, made));
    const auto vector = [&](Linear & w, const char* name, int64_t cols, const char* hf) -> auto& {
      return s.add(w, name, 1, cols).in_hf(std::string("mixer.") + hf).bare_in_hf();
    };
    vector(m.low_norm, "ssm_dt_norm", rank(), "dt_norm_weight").bare_in_gguf();
    vector(m.b_norm, "ssm_b_norm", states, "B_norm_weight").bare_in_gguf();
    vector(m.c_norm, "ssm_c_norm", states, "C_norm_weight").bare_in_gguf();
    s.add(m.dt, "ssm_dt", steps, rank()).in_hf("mixer.dt_proj");
    vector(m.dt_bias, "ssm_dt.bias", steps, "dt_bias");
    vector(m.decays, "ssm_a", steps, "A_log").minus_exp_in_hf();
    vector(m.direct, "ssm_d", steps, "D");
    s.add(m.out, "ssm_out", dim, inner).in_hf("mixer.out_proj");
  }

  ValueId attend(Graph& g, ValueId n, size_t i) const override {
    if (!attends(int64_t(i))) return mixed(g, n, mambas[i]);
    const AttentionWeights& w = layers[i].attn;
    const ValueId q = linear(g, n, w.q), k = linear(g, n, w.k), v = linear(g, n, w.v);
    const ValueId y = attention_of(g, g.rms_norm(q, *w.q_norm.weight, eps, heads),
                                   g.rms_norm(k, *w.k_norm.weight, eps, kv_heads), v, int(i));
    return linear(g, y, w.output);
  }

  ValueId mixed(Graph& g, ValueId n, const Mamba& m) const {
    const ValueId z = linear(g, n, m.z);
    const ValueId x = g.short_conv(linear(g, n, m.x), *m.conv.weight, nullptr, true);
    const auto made = [&](const Linear& w, const Linear& norm) {
      return rms_norm(g, linear(g, x, w), norm);
    };
    Linear step = m.dt;
    step.bias = m.dt_bias.weight;
    const ValueId dt = g.activate(Activation::softplus, linear(g, made(m.low, m.low_norm), step));
    const ValueId xbc = g.join(g.join(x, made(m.b, m.b_norm), 1), made(m.c, m.c_norm), 1);
    const ValueId y = g.state_scan(xbc, dt, scan(), *m.decays.weight, *m.direct.weight);
    return linear(g, g.mul(g.silu(z), y), m.out);
  }
};

}  // namespace

extern const Architecture kPlamo2;
const Architecture kPlamo2{
    "plamo2", {"Plamo2ForCausalLM", "PLaMo2ForCausalLM"}, make_model<Plamo2>};

}  // namespace chaski
