// Granite 4 H: Mamba 2, with attention without positions in some layers, Granite's four factors,
// and experts next to a shared feed-forward, which is the only one in the dense models.
#include "models/blocks/hybrid.h"

namespace chaski {

namespace {

class GraniteHybrid : public Hybrid {
 public:
  GraniteHybrid() {
    qkv_bias = Bias::none;
    names = {"block_sparse_moe.router.layer", "block_sparse_moe.input_linear",
             "block_sparse_moe.input_linear", "block_sparse_moe.output_linear"};
    gate_up_in_one = true;
  }

  void keys(Keys& k) override {
    size_keys(k);
    std::erase_if(k.list, [](const Key& key) { return key.ours == "model.head_count_kv"; });
    kv_list_key(k, "layer_types", "attention", "mamba");
    k["attention_layers"].in_hf({"layers_block_type", "layer_types"});
    for (const char* word : {"full_attention", "linear_attention"})
      k["attention_layers"].hf_word(word, word[0] == 'f' ? "1" : "0");
    rms_norm_key(k);
    factor_keys(k);
    expert_keys(k, {"num_local_experts"});
    k.integer(shared_ffn, "expert_shared_feed_forward_length")
        .in_hf("shared_intermediate_size")
        .range(2, 1 << 22)
        .hf_otherwise(int64_t{1024});
    mixer_keys(k, "mamba_d_conv", "mamba_expand", "mamba_d_state", "mamba_n_heads");
    k["ssm.state_size"].hf_otherwise(int64_t{256});
    k["ssm.time_step_rank"].hf_otherwise(int64_t{128});
    group_key(k, "mamba_n_groups");
    k["ssm.group_count"].hf_otherwise(int64_t{1});
    expect_head_width(k, "mamba_d_head", "mamba_expand * hidden_size / mamba_n_heads");
    expect_no_step_limits(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"position_embedding_type"}, {"nope"});
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"mamba_proj_bias"}, {false});
    k.hf_tensors("mamba_conv_bias", {".conv1d.bias"}, true);
  }

 private:
  void feed_slots(Slots& s, int64_t i) override {
    if (experts > 0) return Experts::feed_slots(s, i);
    mixtures.resize(layers.size());
    shared_slots(s, mixtures[size_t(i)]);
  }
  void shared_slots(Slots& s, Mixture& m) const override {
    GatedWeights& w = m.shared;
    const bool shared = experts > 0;
    const auto add = [&](Linear& member, const char* name, const char* alone, int64_t first) {
      s.add(member, shared ? name : alone, shared_ffn, dim)
          .in_hf("shared_mlp.input_linear", part(first, 2 * shared_ffn));
    };
    add(w.gate, "ffn_gate_shexp", "ffn_gate", 0);
    add(w.up, "ffn_up_shexp", "ffn_up", shared_ffn);
    s.add(w.down, shared ? "ffn_down_shexp" : "ffn_down", dim, shared_ffn)
        .in_hf("shared_mlp.output_linear");
  }
  ValueId feed(Graph& g, ValueId n, size_t i) const override {
    return experts > 0 ? Experts::feed(g, n, i) : gated(g, n, mixtures[i].shared);
  }
};

}  // namespace

extern const Architecture kGraniteHybrid;
const Architecture kGraniteHybrid{
    "granitehybrid", {"GraniteMoeHybridForCausalLM"}, make_model<GraniteHybrid>};

}  // namespace chaski
