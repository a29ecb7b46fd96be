// Jamba (Lieber et al. 2024, arXiv 2403.19887): Mamba with norms of time steps, B and C; attention
// without positions in some layers, and experts in some.
#include "models/blocks/hybrid.h"

namespace chaski {

namespace {

class Jamba : public Hybrid {
 public:
  Jamba() {
    has_heads = false, normed_steps = true, normalised = false, qkv_bias = Bias::none;
    names = {"feed_forward.router", "feed_forward.experts.*.gate_proj",
             "feed_forward.experts.*.up_proj", "feed_forward.experts.*.down_proj"};
    hf.ffn_norm = "pre_ff_layernorm", hf.last_norm = "final_layernorm";
  }

  void keys(Keys& k) override {
    size_keys(k);
    std::erase_if(k.list, [](const Key& key) { return key.ours == "model.head_count_kv"; });
    const auto part_key = [&](int64_t& member, const char* name, const char* in_hf, int64_t usual) {
      k.integer(member, name).not_in_gguf().in_hf(in_hf).range(0, 4096).otherwise(usual);
    };
    part_key(period, "attention_period", "attn_layer_period", 8);
    part_key(offset, "attention_offset", "attn_layer_offset", 4);
    part_key(expert_period, "expert_period", "expert_layer_period", 2);
    part_key(expert_offset, "expert_offset", "expert_layer_offset", 1);
    k.integer(hf_heads, "key_heads")
        .not_in_gguf()
        .in_hf("num_key_value_heads")
        .range(1, 4096)
        .otherwise(int64_t{8});
    k.integers(kv_list, "head_count_kv", n_layers)
        .in_gguf("attention.head_count_kv")
        .not_in_hf()
        .range(0, 4096)
        .otherwise([this] {
          std::vector<int64_t> list;
          for (int64_t i = 0; i < n_layers; ++i)
            list.push_back(period > 0 && i % period == offset ? hf_heads : 0);
          return Given(list);
        });
    rms_norm_key(k);
    expert_keys(k, {"num_experts", "num_local_experts"});
    mixer_keys(k, "mamba_d_conv", "mamba_expand", "mamba_d_state", "mamba_dt_rank");
    k["ssm.state_size"].hf_otherwise(int64_t{16});
    k["ssm.time_step_rank"].hf_otherwise([this] { return Given((dim + 15) / 16); });
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"layer_types"}, {});
    k.hf_tensors("mamba_conv_bias", {".conv1d.bias"}, true);
    k.hf_tensors("mamba_proj_bias", {".in_proj.bias", "mamba.out_proj.bias"});
  }

 private:
  int64_t period = 8, offset = 4, expert_period = 2, expert_offset = 1, hf_heads = 8;

  // GGUF files have no period: their layers with a router are those that the published models have.
  bool has_experts(int64_t layer) const override {
    return experts > 1 && expert_period > 0 && layer % expert_period == expert_offset;
  }
  void feed_slots(Slots& s, int64_t i) override {
    if (has_experts(i)) return Experts::feed_slots(s, i);
    gated_slots(s, layers[size_t(i)].ffn,
                {"feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"});
  }
};

}  // namespace

extern const Architecture kJamba;
const Architecture kJamba{"jamba", {"JambaForCausalLM"}, make_model<Jamba>};

}  // namespace chaski
