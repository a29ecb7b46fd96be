// Nemotron-H (NVIDIA 2025, arXiv 2504.03624) and Nemotron 3 with experts: layers of one norm and
// one part, which is Mamba 2, attention without positions, an ungated relu2 feed-forward, or
// ungated experts with a shared one.
#include <algorithm>

#include "models/blocks/hybrid.h"

namespace chaski {

namespace {

class NemotronH : public Hybrid {
 public:
  NemotronH() {
    activation = Activation::relu2, hf.mixer = "mixer.", choice_bias = Bias::maybe;
    names.router = "mixer.gate", names.bias = "mixer.gate.e_score_correction_bias";
  }

  void keys(Keys& k) override {
    size_keys(k);
    std::erase_if(k.list, [](const Key& key) {
      return key.ours == "model.head_count_kv" || key.ours == "model.feed_forward_length";
    });
    k["head_dim"].hf_otherwise(int64_t{128});
    kv_list_key(k, "hybrid_override_pattern", "*", "-");
    kind_words(k["attention_layers"], "*", "full_attention");
    k.flags(feeds, "feed_forward_layers", n_layers).not_in_gguf().optional();
    kind_words(k["feed_forward_layers"], "-", "mlp");
    k.flags(mixes, "expert_layers", n_layers).not_in_gguf().optional();
    kind_words(k["expert_layers"], "E", "moe");
    // A GGUF file has one list of widths, which cannot tell plain layers from layers with experts.
    // So a model with both kinds cannot be exported to GGUF.
    k.flag(both, "plain_and_expert_layers").in_gguf_always(0).not_in_hf().otherwise([this] {
      return std::ranges::count(feeds, 1) > 0 && std::ranges::count(mixes, 1) > 0;
    });
    mixture_keys(k);
    k.integer(hf_ffn, "feed_forward_width")
        .not_in_gguf()
        .in_hf("intermediate_size")
        .range(2, 1 << 22)
        .otherwise(int64_t{21504});
    k.integers(ffn_list, "feed_forward_length", n_layers)
        .not_in_hf()
        .range(0, 1 << 22)
        .otherwise([this] {
          std::vector<int64_t> list(size_t(n_layers), 0);
          for (size_t i = 0; i < feeds.size(); ++i) list[i] = feeds[i] * hf_ffn;
          for (size_t i = 0; i < mixes.size(); ++i) list[i] += mixes[i] * expert_ffn;
          return Given(list);
        });
    rms_norm_key(k);
    k["norm_epsilon"].in_hf({"layer_norm_epsilon", "rms_norm_eps"}).hf_otherwise(1e-5);
    // llama.cpp wants it in a file with experts, and does not use it.
    k.number(unused_eps, "layer_norm_epsilon")
        .in_gguf("attention.layer_norm_epsilon")
        .not_in_hf()
        .when([this] { return experts > 0; })
        .otherwise([this] { return double(eps); });
    k.integer(head_channels, "ssm.head_channels")
        .not_in_gguf()
        .in_hf("mamba_head_dim")
        .range(1, 1 << 20)
        .optional();
    mixer_keys(k, "conv_kernel", "expand", "ssm_state_size", "mamba_num_heads");
    k["ssm.inner_size"].not_in_hf().otherwise([this] { return Given(head_channels * steps); });
    k["ssm.state_size"].hf_otherwise(int64_t{128});
    k["ssm.time_step_rank"].hf_otherwise(int64_t{128});
    group_key(k, "n_groups");
    k["ssm.group_count"].hf_otherwise(int64_t{8});
    // transformers prefers these names.
    k["ssm.conv_kernel"].in_hf({"mamba_d_conv", "conv_kernel"});
    k["ssm.group_count"].in_hf({"mamba_n_groups", "n_groups"});
    expect_no_step_limits(k, {"mamba_dt_limit", "time_step_limit"});
    // transformers raises smaller steps to it, 0.001 by default. The authors' kernels do not.
    k.number(least_step, "ssm.time_step_min")
        .not_in_gguf()
        .in_hf({"mamba_dt_min", "time_step_min"})
        .between(0, 1e-3)
        .optional();
    k.hf_expects({"mlp_hidden_act"}, {"relu2"});
    k.hf_expects({"mamba_hidden_act"}, {"silu"});
    for (const char* bias : {"attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"})
      k.hf_expects({bias}, {false});
    for (const char* flag : {"use_conv_bias", "mamba_conv_bias"})
      k.hf_tensors(flag, {".conv1d.bias"}, true);
  }

  void agree(const std::string& file) const override {
    Hybrid::agree(file);
    for (size_t i = 0; i < ffn_list.size(); ++i)
      if (ffn_list[i] > 0 && kv_list[i] > 0)
        fail(Exit::bad_file,
             "{}: model.feed_forward_length[{}] is {}, expected 0 in a layer of attention", file, i,
             ffn_list[i]);
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers)), mambas.resize(size_t(n_layers)),
        plains.resize(size_t(n_layers));
    for (const int64_t n : kv_list) kv_heads = int(n > 0 ? n : kv_heads);
    s.hf_prefix = "backbone.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("embeddings").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      PlainWeights& plain = plains[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("norm");
      if (attends(i)) {
        s.add(l.attn.q, "attn_q", q_rows(), dim).in_hf("mixer.q_proj");
        s.add(l.attn.k, "attn_k", kv_rows(), dim).in_hf("mixer.k_proj");
        s.add(l.attn.v, "attn_v", kv_rows(), dim).in_hf("mixer.v_proj");
        s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("mixer.o_proj");
      } else if (has_experts(i)) {
        mixture_slots(s, i);
      } else if (const int64_t width = ffn_list[size_t(i)]; width > 0) {
        s.add(plain.up, "ffn_up", width, dim).in_hf("mixer.up_proj");
        s.add(plain.down, "ffn_down", dim, width).in_hf("mixer.down_proj");
      } else {
        mamba_slots(s, mambas[size_t(i)]);
      }
    }
    end_slots(s, "norm_f");
  }

  void build(Graph& g) const override {
    ValueId x = embedding(g);
    for (size_t i = 0; i < layers.size(); ++i) {
      const ValueId n = rms_norm(g, x, layers[i].attn_norm);
      x = residual(g, x,
                   attends(int64_t(i))       ? attention(g, n, layers[i].attn, int(i))
                   : has_experts(int64_t(i)) ? mixture(g, n, i)
                   : ffn_list[i] > 0         ? plain(g, n, plains[i])
                                             : mamba(g, n, mambas[i]));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }

 private:
  std::vector<PlainWeights> plains;  // also of shared experts
  std::vector<int64_t> feeds, mixes, ffn_list;
  int64_t hf_ffn = 0, head_channels = 64;
  float unused_eps = 0, least_step = 0;
  bool both = false;  // some layers are a plain feed-forward, others have experts

  // GGUF files do not say which: the published models with experts have no other feed-forward.
  bool has_experts(int64_t layer) const override {
    return experts > 0 && (mixes.empty() ? ffn_list[size_t(layer)] > 0 : mixes[size_t(layer)] == 1);
  }
  // transformers reads them only if a layer has experts.
  void mixture_keys(Keys& k) {
    const auto none = [this] { return std::ranges::count(mixes, 1) == 0; };
    k.integer(experts, "expert_count")
        .in_hf({"num_local_experts", "n_routed_experts"})
        .range(0, 4096)
        .ignored_in_hf_if(none)
        .otherwise([=] { return int64_t{none() ? 0 : 8}; });
    const auto some = [this] { return experts > 0; };
    k.integer(chosen, "expert_used_count")
        .in_hf("num_experts_per_tok")
        .range(1, 4096)
        .when(some)
        .hf_otherwise(int64_t{2});
    expert_width_key(k);
    k["expert_feed_forward_length"].when(some).hf_otherwise(int64_t{7688});
    k.integer(shared_ffn, "expert_shared_feed_forward_length")
        .in_hf("moe_shared_expert_intermediate_size")
        .range(2, 1 << 22)
        .when(some)
        .hf_otherwise(int64_t{7688});
    router_keys(k, kSigmoid);
    k["expert_weights_norm"].hf_otherwise(true);
    for (const char* key : {"leading_dense_block_count", "expert_shared_count"})
      k[key].not_in_hf().otherwise(int64_t{0});
    k.hf_expects({"moe_latent_size"}, {});
  }
  void mixture_slots(Slots& s, int64_t i) {
    mixtures.resize(size_t(n_layers));
    Mixture& m = mixtures[size_t(i)];
    PlainWeights& shared = plains[size_t(i)];
    m.experts = experts;
    s.add(m.router, "ffn_gate_inp", experts, dim).in_hf(names.router).as(Role::router);
    s.add(m.bias, "exp_probs_b.bias", 1, experts).in_hf(names.bias).bare_in_hf().optional();
    s.add(m.up, "ffn_up_exps", experts * expert_ffn, dim)
        .of_experts(experts, chosen)
        .in_hf("mixer.experts.*.up_proj");
    s.add(m.down, "ffn_down_exps", experts * dim, expert_ffn)
        .of_experts(experts, chosen)
        .in_hf("mixer.experts.*.down_proj");
    s.add(shared.up, "ffn_up_shexp", shared_ffn, dim).in_hf("mixer.shared_experts.up_proj");
    s.add(shared.down, "ffn_down_shexp", dim, shared_ffn).in_hf("mixer.shared_experts.down_proj");
  }
  ValueId mixture(Graph& g, ValueId n, size_t i) const {
    const Mixture& m = mixtures[i];
    const Graph::Routed c = choose(g, linear(g, n, m.router), m);
    const auto expert = [&](ValueId x, const Linear& w) {
      return g.expert_matmul(x, *w.weight, int(experts), c.experts);
    };
    const ValueId y = expert(g.activate(activation, expert(n, m.up)), m.down);
    return g.add(g.mix(y, c.weights), plain(g, n, plains[i]));
  }

  // config.json has a letter or a word for each layer.
  static void kind_words(Key& key, const std::string& letter, const std::string& word) {
    key.in_hf({"layer_types", "layers_block_type", "hybrid_override_pattern"});
    key.hf_words.clear();
    for (const char* other : {"M", "-", "*", "E"}) key.hf_word(other, other == letter ? "1" : "0");
    for (const char* other :
         {"linear_attention", "mamba", "mlp", "moe", "full_attention", "attention"})
      key.hf_word(other, other == word || "full_" + std::string(other) == word ? "1" : "0");
  }
};

}  // namespace

extern const Architecture kNemotronH, kNemotronHMoe;
const Architecture kNemotronH{"nemotron_h", {"NemotronHForCausalLM"}, make_model<NemotronH>};
const Architecture kNemotronHMoe{"nemotron_h_moe", {}, make_model<NemotronH>};

}  // namespace chaski
