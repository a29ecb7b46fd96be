// gpt-oss (20B, 120B): attention with a sink for each head, every other layer with a window, yarn;
// experts with biases in all layers.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class GptOss : public Experts {
 public:
  GptOss() {
    sinks = half_split_in_gguf = true;
    qkv_bias = Bias::maybe;
    ffn_norm_name = "post_attention_norm";
    names = {"mlp.router", "mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj",
             "mlp.experts.down_proj"};
    gate_up_rows_in_turn = gate_up_transposed = down_transposed = bare_in_hf = true;
    router_bias = expert_bias = Bias::always;
  }

  void keys(Keys& k) override {
    size_keys(k);
    for (auto [name, usual] : {std::pair{"head_dim", 64}, {"head_count_kv", 8}})
      k[name].hf_otherwise(int64_t{usual});
    rope_keys(k);
    k["rope_theta"].hf_otherwise(150000.0);
    // Without it transformers assumes the published models' yarn.
    k["rope_scaling"]
        .in_hf({"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type",
                "rope_parameters.type"})
        .required_in_hf();
    k["rope_truncate"].in_gguf_always(false).gguf_otherwise(false).hf_null_is(false);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    window_key(k);
    k["sliding_window"].range(1, 1 << 30);
    window_pattern_key(k, 2);
    expert_keys(k, {"num_local_experts", "num_experts"});
    k.integer(expert_ffn, "expert_feed_forward_length")
        .in_hf("intermediate_size")
        .range(2, 1 << 22);
    // The numbers of Binary::Kind::clamped_swiglu.
    k.hf_expects({"swiglu_limit"}, {double(Binary::kLimit)});
    k.hf_expects({"swiglu_alpha"}, {1.702});
    k.hf_tensors("attention_bias", attention_biases(), true);
  }

  ValueId gate(Graph& g, ValueId gates, ValueId ups) const override {
    return g.clamped_swiglu(gates, ups);
  }
};

}  // namespace

extern const Architecture kGptOss;
const Architecture kGptOss{"gpt-oss", {"GptOssForCausalLM"}, make_model<GptOss>};

}  // namespace chaski
