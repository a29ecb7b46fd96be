// Gemma 4, text and dense. Layers without a window have wider heads, of which rope rotates only a
// part, and may use their keys (before norm and rope) as values. 26B is a mixture of experts; its
// config.json and tensors are refused.
#include <algorithm>

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
  };
  std::vector<Scaled> layers;
  // Of layers without a window, if config.json has it: in any model, and in models with k_is_v.
  int64_t wide_kv_heads = 0, k_is_v_heads = 0;
  bool wider_readers = false;
  int64_t turned = 0;  // rotated channels of a head, in layers without a window

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
    k.hf_expects({"enable_moe_block"}, {false});
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
    }
    head_slots(s);
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
      const ValueId made = gated(g, rms_norm(g, x, l.ffn_norm), l.ffn, Activation::gelu);
      x = g.add(x, rms_norm(g, made, l.ffn_outer_norm));
      if (own_width > 0) x = g.add(x, own_input(g, x, l, i, inputs));
      x = g.scale(x, *reinterpret_cast<const float*>(l.scale.weight->data));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }

  std::vector<float> divisors_;
};

}  // namespace

extern const Architecture kGemma4;
const Architecture kGemma4{"gemma4", {"Gemma4ForCausalLM"}, make_model<Gemma4>, {"gemma4_text"}};

}  // namespace chaski
