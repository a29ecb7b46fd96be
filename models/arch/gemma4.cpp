// Gemma 4, text. Layers without a window have wider heads, of which rope rotates only a part, and
// may use their keys (before norm and rope) as values. In 26B each layer has experts in addition to
// its feed-forward. They have norms and a router of their own.
#include <algorithm>

#include "models/blocks/experts.h"
#include "models/blocks/gemma_n.h"
#include "models/blocks/rope_divisors.h"

namespace chaski {

namespace {

class Gemma4 : public GemmaN {
 public:
  Gemma4() { k_may_be_v = true; }

 private:
  struct Scaled : Layer {
    Linear scale;  // factor of the layer's output: one number
    Linear ffn_own_norm, experts_norm, experts_outer_norm;
    Linear router, router_norm;  // router_norm: a factor for each channel
    ExpertMatrices mixture;
    Linear expert_scale;
  };
  std::vector<Scaled> layers;
  // Of layers without a window, if config.json has it: in any model, and in models with k_is_v.
  int64_t wide_kv_heads = 0, k_is_v_heads = 0;
  bool wider_readers = false;
  int64_t turned = 0;  // rotated channels of a head, in layers without a window
  bool has_experts = false;
  int64_t experts = 0, chosen = 0, expert_ffn = 0;  // as in blocks/experts.h

  void keys(Keys& k) override {
    k.flag(k_is_v, "values_are_keys").not_in_gguf().in_hf("attention_k_eq_v").optional();
    k.flag(wider_readers, "wider_readers").not_in_gguf().in_hf("use_double_wide_mlp").optional();
    k.integer(wide_kv_heads, "head_count_kv_without_window")
        .not_in_gguf()
        .in_hf("per_layer_config.*.num_key_value_heads")
        .range(1, 4096)
        .optional();
    k.integer(k_is_v_heads, "head_count_kv_of_k_is_v")
        .not_in_gguf()
        .in_hf("num_global_key_value_heads")
        .range(1, 4096)
        .when([this] { return k_is_v && wide_kv_heads == 0; })
        .optional();
    const auto kv_heads_in_hf = [this](int64_t n) {
      auto list = in_all_layers(n);
      const int64_t wide = std::max(wide_kv_heads, k_is_v_heads);
      for (size_t i = 0; i < list.size(); ++i)
        if (wide > 0 && !has_window(int(i))) list[i] = wide;
      return Given(list);
    };
    const auto ffn_in_hf = [this](int64_t n) {
      auto list = in_all_layers(n);
      for (size_t i = 0; i < list.size(); ++i)
        if (wider_readers && !keeps(int64_t(i))) list[i] = 2 * n;
      return Given(list);
    };
    layer_keys(k, 6, kv_heads_in_hf, ffn_in_hf);
    for (auto [name, usual] : {std::pair{"sliding_window", 512}, {"layer_input_length", 256}})
      k[name].hf_otherwise(int64_t{usual});
    // transformers 5.23 saves global_head_dim and num_global_key_value_heads layer by layer.
    k["head_dim"]
        .in_hf({"per_layer_config.*.head_dim", "global_head_dim"})
        .hf_otherwise(int64_t{512});
    k.hf_layers("per_layer_config", "layer_types", {"head_dim", "num_key_value_heads"},
                [this](int64_t layer) { return !has_window(int(layer)); });
    k["rope_scaling"]
        .in_hf("rope_parameters.full_attention.rope_type")
        .hf_word("proportional", "none")
        .required_in_hf();
    k.hf_expects({"rope_parameters.full_attention.rope_type"}, {"proportional"});
    // transformers lets the last layer attend to everything, whatever config.json says.
    k["window_layers"].hf_otherwise([this] {
      std::vector<int64_t> list = all_but_every(6);
      list.back() = 0;
      return Given(list);
    });
    if (std::vector<std::string> types; !windowed.empty() && windowed.back()) {
      for (int64_t on : windowed) types.push_back(on ? "sliding_attention" : "full_attention");
      types.back() = "full_attention";
      k.hf_expects({"layer_types"}, {types});
    }
    k.integer(turned, "rope_turned")
        .not_in_gguf()
        .in_hf("rope_parameters.full_attention.partial_rotary_factor")
        .converted_from_hf([this](double part) {
          return Given(int64_t(std::clamp(part, 0.0, 1.0) * double(head_dim) / 2) * 2);
        })
        .range(0, 1 << 20)
        .otherwise([this] { return int64_t{rope.dim}; });
    k.hf_expects({"rope_parameters.full_attention.factor"}, {1.0});
    k.flag(has_experts, "experts_in_layers").not_in_gguf().in_hf("enable_moe_block").optional();
    const auto expert_key = [&](int64_t& member, const char* name, const char* hf, int64_t most) {
      k.integer(member, name)
          .in_hf(hf)
          .ignored_in_hf_if([this] { return !has_experts; })
          .range(0, most)
          .optional();
    };
    expert_key(experts, "expert_count", "num_experts", 4096);
    expert_key(chosen, "expert_used_count", "top_k_experts", 4096);
    expert_key(expert_ffn, "expert_feed_forward_length", "moe_intermediate_size", 1 << 22);
    k.hf_expects({"use_bidirectional_attention"}, {"vision"});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    table_slots(s);
    rope_freqs_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      s.layer(i, "layers.");
      layer_slots(s, layers[size_t(i)], i);
      s.add(layers[size_t(i)].scale, "layer_output_scale", 1, 1).in_hf("layer_scalar").bare_in_hf();
      if (experts > 0) expert_slots(s, layers[size_t(i)]);
    }
    head_slots(s);
  }

  void expert_slots(Slots& s, Scaled& l) {
    s.add(l.ffn_own_norm, "post_ffw_norm_1", 1, dim).in_hf("post_feedforward_layernorm_1");
    s.add(l.experts_norm, "pre_ffw_norm_2", 1, dim).in_hf("pre_feedforward_layernorm_2");
    s.add(l.experts_outer_norm, "post_ffw_norm_2", 1, dim).in_hf("post_feedforward_layernorm_2");
    s.add(l.router, "ffn_gate_inp", experts, dim).in_hf("router.proj").as(Role::router);
    s.add(l.router_norm, "ffn_gate_inp.scale", 1, dim).in_hf("router.scale").bare_in_hf();
    const int64_t rows = experts * expert_ffn;
    const auto add = [&](Linear& w, const char* name, int64_t n, int64_t cols) -> Slots::Slot& {
      return s.add(w, name, experts * n, cols).of_experts(experts, chosen).bare_in_hf();
    };
    const auto of_both = [&](Linear& w, const char* name, int64_t first) {
      const RowOrder order = part(first, 2 * rows).taking_turns(experts, rows);
      add(w, name, expert_ffn, dim)
          .in_hf("experts.gate_up_proj", order)
          .in_gguf("ffn_gate_up_exps", order);
    };
    l.mixture.experts = experts;
    of_both(l.mixture.gate, "ffn_gate_exps", 0);
    of_both(l.mixture.up, "ffn_up_exps", expert_ffn);
    add(l.mixture.down, "ffn_down_exps", dim, expert_ffn).in_hf("experts.down_proj");
    s.add(l.expert_scale, "ffn_down_exps.scale", 1, experts)
        .in_hf("router.per_expert_scale")
        .bare_in_hf();
  }

  void agree(const std::string& file) const override {
    GemmaN::agree(file);
    if (has_experts && experts == 0)
      fail(Exit::bad_file,
           "{}: model.expert_count is 0, expected 2 or more, because enable_moe_block is true",
           file);
    if (experts > 0)
      expect_experts(file, experts, chosen,
                     {{"embedding_length", dim}, {"expert_feed_forward_length", expert_ffn}});
  }

  // GGUF files have divisors that disable the rotation of the other channels. If the file has none,
  // they are made here.
  void bound(const std::string& file) override {
    GemmaN::bound(file);
    divisors_ = rope.freq_factors;
    if (divisors_.empty()) divisors_ = divisors_of_part(turned, rope.dim);
  }
  RopeSpec rope_of(int layer) const override {
    RopeSpec spec = GemmaN::rope_of(layer);
    if (!has_window(layer)) spec.freq_factors = divisors_;
    return spec;
  }

  void build(Graph& g) const override {
    ValueId x = g.scale(g.get_rows(*token_embd.weight), std::sqrt(float(dim)));
    const ValueId inputs = own_inputs(g, x);
    std::vector<StateId> states;
    for (int i = 0; i < n_layers; ++i) {
      const Scaled& l = layers[size_t(i)];
      const ValueId mixed = attend(g, rms_norm(g, x, l.attn_norm), l, i, states);
      x = g.add(x, rms_norm(g, mixed, l.attn_outer_norm));
      ValueId made = gated(g, rms_norm(g, x, l.ffn_norm), l.ffn, Activation::gelu);
      if (experts > 0) made = g.add(rms_norm(g, made, l.ffn_own_norm), consulted(g, x, l));
      x = g.add(x, rms_norm(g, made, l.ffn_outer_norm));
      if (own_width > 0) x = g.add(x, own_input(g, x, l, i, inputs));
      x = g.scale(x, *reinterpret_cast<const float*>(l.scale.weight->data));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }

  // The normed result of a layer's experts.
  ValueId consulted(Graph& g, ValueId x, const Scaled& l) const {
    const ValueId n = g.scale(rms_norm(g, x, l.router_norm), 1 / std::sqrt(float(dim)));
    const Graph::Chosen c = g.top_k(linear(g, n, l.router), int(chosen));
    const ValueId weights =
        g.scale_chosen(g.soft_max(c.values, 1), c.experts, *l.expert_scale.weight);
    const ValueId all = consult_experts(g, rms_norm(g, x, l.experts_norm), l.mixture, c.experts,
                                        [&](ValueId gates, ValueId ups) {
                                          return g.mul(g.activate(Activation::gelu, gates), ups);
                                        });
    return rms_norm(g, g.mix(all, weights), l.experts_outer_norm);
  }

  std::vector<float> divisors_;
};

}  // namespace

extern const Architecture kGemma4;
const Architecture kGemma4{"gemma4", {"Gemma4ForCausalLM"}, make_model<Gemma4>, {"gemma4_text"}};

}  // namespace chaski
