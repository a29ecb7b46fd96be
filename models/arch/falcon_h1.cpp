// Falcon-H1: Mamba 2 and attention side by side in every layer, and factors of all of their parts.
// In GGUF files the weights are multiplied by them already.
#include "models/blocks/hybrid.h"

namespace chaski {

namespace {

class FalconH1 : public Hybrid {
 public:
  FalconH1() {
    qkv_bias = Bias::none, half_split_in_gguf = true;
    hf.ffn_norm = "pre_ff_layernorm", hf.last_norm = "final_layernorm";
  }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.integer(channels, "ssm.inner_channels")
        .not_in_gguf()
        .in_hf("mamba_d_ssm")
        .range(2, 1 << 22)
        .optional();
    k.integer(expand, "ssm.expand").not_in_gguf().in_hf("mamba_expand").range(1, 64).optional();
    mixer_keys(k, "mamba_d_conv", "mamba_expand", "mamba_d_state", "mamba_n_heads");
    k["ssm.inner_size"].not_in_hf().otherwise(
        [this] { return Given(channels > 0 ? channels : expand * dim); });
    k["ssm.state_size"].hf_otherwise(int64_t{256});
    k["ssm.time_step_rank"].hf_otherwise(int64_t{128});
    group_key(k, "mamba_n_groups");
    k["ssm.group_count"].hf_otherwise(int64_t{1});
    const auto factor = [&](float& member, const char* name, const char* in_hf) {
      k.number(member, name).in_gguf_always(1).in_hf(in_hf).otherwise(1.0);
    };
    factor(embedding_scale, "embedding_scale", "embedding_multiplier");
    factor(logit_scale, "logit_factor", "lm_head_multiplier");
    factor(key_factor, "key_factor", "key_multiplier");
    factor(attention_in, "attention_in_factor", "attention_in_multiplier");
    factor(attention_out, "attention_out_factor", "attention_out_multiplier");
    factor(mixer_in, "ssm_in_factor", "ssm_in_multiplier");
    factor(mixer_out, "ssm_out_factor", "ssm_out_multiplier");
    k.numbers(part_factors, "ssm_factors", [] { return 5; })
        .not_in_gguf()
        .in_hf("ssm_multipliers")
        .otherwise(std::vector<double>(5, 1.0));
    k.numbers(feed_factors, "feed_forward_factors", [] { return 2; })
        .not_in_gguf()
        .in_hf("mlp_multipliers")
        .otherwise(std::vector<double>(2, 1.0));
    expect_head_width(k, "mamba_d_head", "mamba_d_ssm / mamba_n_heads");
    expect_no_step_limits(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"layer_types"}, {});
    k.hf_expects({"mamba_proj_bias"}, {false});
    k.hf_expects({"projectors_bias"}, {false});
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"mlp_bias"}, {false});
    k.hf_tensors("mamba_conv_bias", {".conv1d.bias"}, true);
    k.flag(needs_norm, "ssm.rms_norm").not_in_gguf().in_hf("mamba_rms_norm").optional();
    k.hf_tensors("mamba_rms_norm", {".mamba.norm.weight"});
    // transformers takes true if it is missing.
    k.flag(norm_first, "ssm.norm_before_gate")
        .not_in_gguf()
        .in_hf("mamba_norm_before_gate")
        .when([this] { return needs_norm; })
        .required_in_hf()
        .optional();
    if (needs_norm) k.hf_expects({"mamba_norm_before_gate"}, {false});
  }

  // A convolution's weights times the factors of x, B and C is one of these times their factors.
  void bound(const std::string& file) override {
    Hybrid::bound(file);
    const int64_t of_group = groups * states, cols = xbc();
    scaled.assign(layers.size(), {});
    for (size_t i = 0; i < layers.size(); ++i) {
      const Weight& from = *mambas[i].conv.weight;
      scaled[i].numbers.assign(reinterpret_cast<const float*>(from.data),
                               reinterpret_cast<const float*>(from.data) + taps * cols);
      for (int64_t at = 0; at < taps * cols; ++at) {
        const int64_t c = at % cols;
        const int part = c < inner ? 1 : c < inner + of_group ? 2 : 3;
        scaled[i].numbers[size_t(at)] *= mixer_in * part_factors[size_t(part)];
      }
      scaled[i].weight = {from.info, reinterpret_cast<const std::byte*>(scaled[i].numbers.data())};
      mambas[i].conv.weight = &scaled[i].weight;
    }
    score_scale = key_factor * attention_in * attention_in / std::sqrt(float(head_dim));
  }

 private:
  int64_t channels = 0, expand = 2;
  bool norm_first = false;
  float key_factor = 1, attention_in = 1, attention_out = 1, mixer_in = 1, mixer_out = 1;
  std::vector<float> part_factors, feed_factors;  // of z, x, B, C and dt; of gate and down
  struct Scaled {
    std::vector<float> numbers;
    Weight weight;
  };
  std::vector<Scaled> scaled;

  void attend_slots(Slots& s, int64_t i) override {
    mamba_slots(s, mambas[size_t(i)]);
    Llama::attend_slots(s, i);
  }
  void feed_slots(Slots& s, int64_t i) override {
    gated_slots(s, layers[size_t(i)].ffn,
                {"feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"});
  }

  static ValueId times(Graph& g, ValueId x, float factor) {
    return factor == 1 ? x : g.scale(x, factor);
  }
  ValueId attend(Graph& g, ValueId n, size_t i) const override {
    const ValueId recalled = mixed(g, n, mambas[i]), seen = attention(g, n, layers[i].attn, int(i));
    return g.add(times(g, recalled, mixer_out), times(g, seen, attention_in * attention_out));
  }
  ValueId mixed(Graph& g, ValueId n, const Mamba& m) const {
    const ValueId z = times(g, linear(g, n, m.z), mixer_in * part_factors[0]);
    const ValueId in = linear(g, n, m.x);
    Linear step = m.dt;
    step.bias = m.dt_bias.weight;
    const ValueId dt =
        g.activate(Activation::softplus, linear(g, times(g, n, mixer_in * part_factors[4]), step));
    const ValueId x = g.short_conv(in, *m.conv.weight, m.conv_bias.weight, true);
    const ValueId y = g.state_scan(x, dt, scan(), *m.decays.weight, *m.direct.weight);
    return linear(g, gated_norm(g, y, z, m), m.out);
  }
  ValueId feed(Graph& g, ValueId n, size_t i) const override {
    const GatedWeights& w = layers[i].ffn;
    if (feed_factors[0] == 1 && feed_factors[1] == 1) return gated(g, n, w);
    const ValueId gate = g.silu(times(g, linear(g, n, w.gate), feed_factors[0]));
    return times(g, linear(g, g.mul(gate, linear(g, n, w.up)), w.down), feed_factors[1]);
  }
};

}  // namespace

extern const Architecture kFalconH1;
const Architecture kFalconH1{"falcon-h1", {"FalconH1ForCausalLM"}, make_model<FalconH1>};

}  // namespace chaski
