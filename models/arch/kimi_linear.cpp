// Kimi Linear (Moonshot AI 2025, arXiv 2510.26692): Kimi Delta Attention (ops/delta_rule.h, with a
// decay for each channel) in three of four layers, latent attention without rotary positions in the
// others. The first layer is dense, the others choose experts and have a shared expert.
#include <algorithm>

#include "models/blocks/mla.h"

namespace chaski {

namespace {

class KimiLinear : public Mla {
 public:
  KimiLinear() {
    choice_bias = Bias::maybe;
    names = {"block_sparse_moe.gate", "block_sparse_moe.experts.*.w1",
             "block_sparse_moe.experts.*.w3", "block_sparse_moe.experts.*.w2"};
    names.shared = "block_sparse_moe.shared_experts";
    names.bias = "block_sparse_moe.gate.e_score_correction_bias";
  }

  void keys(Keys& k) override {
    latent_keys(k);
    k["context_length"].in_hf({"model_max_length", "max_position_embeddings"});
    k["query_rank"].hf_otherwise(int64_t{0});
    // transformers sets it to qk_rope_head_dim, whatever the file says.
    std::erase_if(k.conditions,
                  [](const HfCondition& c) { return c.places.front() == "head_dim"; });
    v3_keys(k);
    expect_scaling(k, {"default"});
    k["norm_epsilon"].hf_otherwise(1e-5);
    const auto also = [&](const char* key, const char* older, const char* newer) -> Key& {
      return k[key].in_hf({older, newer});
    };
    also("expert_count", "num_experts", "num_local_experts").hf_otherwise(int64_t{256});
    also("expert_used_count", "num_experts_per_token", "num_experts_per_tok")
        .hf_otherwise(int64_t{8});
    also("expert_shared_count", "num_shared_experts", "n_shared_experts");
    also("expert_weights_norm", "moe_renormalize", "norm_topk_prob").gguf_otherwise(true);
    also("expert_group_count", "num_expert_group", "n_group").hf_otherwise(int64_t{1});
    k["expert_group_used_count"].hf_otherwise(int64_t{1});
    k["expert_weights_scale"].hf_otherwise(2.446);
    k["leading_dense_block_count"].hf_otherwise(int64_t{1});
    k["expert_gating_func"].gguf_otherwise(int64_t{kSigmoid});
    std::erase_if(k.conditions,
                  [](const HfCondition& c) { return c.places.front() == "n_routed_experts"; });
    k.hf_expects({"moe_router_activation_func"}, {"sigmoid"});
    k.hf_expects({"mla_use_nope"}, {true});
    kind_keys(k);
    delta_keys(k);
  }

  void tensors(Slots& s) override {
    deltas.resize(size_t(n_layers));
    Mla::tensors(s);
  }

 private:
  struct Delta {
    Linear q, k, v, q_conv, k_conv, v_conv, f_a, f_b, dt_bias, decays, beta, g_a, g_b, norm, out;
  };
  std::vector<Delta> deltas;
  std::vector<int64_t> attending;  // config.json's numbers of layers with attention, from 1 on
  // By layer, 1 for attention and 0 for a delta rule. `kinds_in_hf` is layer_types of config.json,
  // which some files have instead of `attending`. `kv_list` is GGUF's list, or made from them.
  std::vector<int64_t> kinds_in_hf, kv_list;
  int64_t taps = 4, delta_dim = 128;

  bool attends(int64_t layer) const { return kv_list[size_t(layer)] > 0; }
  bool turns(int) const override { return false; }
  int64_t delta_rows() const { return heads * delta_dim; }

  void kind_keys(Keys& k) {
    k.integers(attending, "attention_layers", n_layers)
        .not_in_gguf()
        .in_hf("linear_attn_config.full_attn_layers")
        .filled_in_hf(0)
        .range(0, 4096)
        .optional();
    k.flags(kinds_in_hf, "attention_kinds", n_layers)
        .not_in_gguf()
        .in_hf("layer_types")
        .hf_word("full_attention", "1")
        .hf_word("linear_attention", "0")
        .optional();
    k.integers(kv_list, "head_count_kv", n_layers)
        .in_gguf("attention.head_count_kv")
        .not_in_hf()
        .range(0, 1)
        .otherwise([this] {
          if (attending.empty() && !kinds_in_hf.empty()) return Given(kinds_in_hf);
          std::vector<int64_t> list;
          for (int64_t i = 0; i < n_layers; ++i)
            list.push_back(attending.empty() ? i > 0 && i % 4 == 0
                                             : std::ranges::count(attending, i + 1) > 0);
          return Given(list);
        });
    if (kv_list.empty()) return;
    std::vector<std::string> kinds, parts;
    std::vector<int64_t> others;
    for (int64_t i = 0; i < n_layers; ++i) {
      kinds.push_back(attends(i) ? "full_attention" : "linear_attention");
      parts.push_back(i < dense_layers ? "dense" : "sparse");
      if (!attends(i)) others.push_back(i + 1);
    }
    k.hf_expects({"layer_types"}, {kinds});
    k.hf_expects({"mlp_layer_types"}, {parts});
    k.hf_expects({"linear_attn_config.kda_layers"}, {others},
                 "the layers up to num_hidden_layers that full_attn_layers does not have, ");
  }
  void delta_keys(Keys& k) {
    k.integer(taps, "ssm.conv_kernel")
        .in_hf({"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"})
        .range(2, 64)
        .hf_otherwise(int64_t{4});
    k.integer(delta_dim, "kda.head_dim")
        .in_hf({"linear_attn_config.head_dim", "linear_head_dim"})
        .range(1, 1 << 16)
        .hf_otherwise(int64_t{128});
    k.hf_expects({"linear_attn_config.num_heads", "linear_num_heads"}, {int64_t{heads}},
                 "num_attention_heads, ");
  }

  void attend_slots(Slots& s, int64_t i) override {
    if (attends(i)) return Mla::attend_slots(s, i);
    Delta& d = deltas[size_t(i)];
    const int64_t rows = delta_rows();
    const auto add = [&](Linear& w, const char* name, const char* hf, int64_t outputs,
                         int64_t inputs) {
      s.add(w, name, outputs, inputs).in_hf(std::string("self_attn.") + hf);
    };
    const auto conv = [&](Linear& w, const char* name, const char* hf) {
      s.add(w, name, 1, taps * rows).in_hf(std::string("self_attn.") + hf).transpose_of(rows);
    };
    add(d.q, "attn_q", "q_proj", rows, dim);
    add(d.k, "attn_k", "k_proj", rows, dim);
    add(d.v, "attn_v", "v_proj", rows, dim);
    conv(d.q_conv, "ssm_conv1d_q", "q_conv1d");
    conv(d.k_conv, "ssm_conv1d_k", "k_conv1d");
    conv(d.v_conv, "ssm_conv1d_v", "v_conv1d");
    add(d.f_a, "ssm_f_a", "f_a_proj", delta_dim, dim);
    add(d.f_b, "ssm_f_b", "f_b_proj", rows, delta_dim);
    s.add(d.dt_bias, "ssm_dt.bias", 1, rows).in_hf("self_attn.dt_bias").bare_in_hf();
    s.add(d.decays, "ssm_a", 1, heads)
        .in_hf("self_attn.A_log")
        .bare_in_hf()
        .minus_exp_in_hf()
        .matrix_of(heads);
    add(d.beta, "ssm_beta", "b_proj", heads, dim);
    add(d.g_a, "ssm_g_a", "g_a_proj", delta_dim, dim);
    add(d.g_b, "ssm_g_b", "g_b_proj", rows, delta_dim);
    s.add(d.norm, "ssm_norm", 1, delta_dim).in_hf("self_attn.o_norm");
    add(d.out, "attn_output", "o_proj", dim, rows);
  }

  ValueId attend(Graph& g, ValueId n, size_t i) const override {
    if (attends(int64_t(i))) return Mla::attend(g, n, i);
    const Delta& d = deltas[i];
    const auto convolved = [&](const Linear& w, const Linear& conv) {
      return g.short_conv(linear(g, n, w), *conv.weight, nullptr, true);
    };
    Linear step = d.f_b;
    step.bias = d.dt_bias.weight;
    const ValueId q = convolved(d.q, d.q_conv), k = convolved(d.k, d.k_conv),
                  v = convolved(d.v, d.v_conv),
                  dt = g.activate(Activation::softplus, linear(g, linear(g, n, d.f_a), step)),
                  beta = g.activate(Activation::sigmoid, linear(g, n, d.beta));
    DeltaRule rule{0, heads, heads, int(delta_dim), int(delta_dim)};
    rule.by_channel = true;
    const ValueId y = g.delta_rule(q, k, v, dt, beta, rule, *d.decays.weight);
    const ValueId gate = g.activate(Activation::sigmoid, linear(g, linear(g, n, d.g_a), d.g_b));
    return linear(g, g.mul(gate, g.rms_norm(y, *d.norm.weight, eps, heads)), d.out);
  }
};

}  // namespace

extern const Architecture kKimiLinear;
const Architecture kKimiLinear{"kimi-linear", {"KimiLinearForCausalLM"}, make_model<KimiLinear>};

}  // namespace chaski
