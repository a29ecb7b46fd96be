// K-EXAONE: EXAONE 4's windows and norms of heads in Llama's layers. The first layers are dense;
// the others choose experts by a sigmoid with a bias, and have a shared expert.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class ExaoneMoe : public Experts {
 public:
  ExaoneMoe() {
    head_norms = half_split_in_gguf = true, qkv_bias = Bias::none;
    choice_bias = Bias::always, names.shared = "mlp.shared_experts";
    names.bias = "mlp.e_score_correction_bias";
  }

  void keys(Keys& k) override {
    size_keys(k);
    further_layers_key(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    window_key(k);
    k["sliding_window"].hf_null_is(int64_t{0}).hf_otherwise(int64_t{4096});
    window_pattern_key(k, 4);
    k["window_layers"].when([this] { return window > 0; });
    if (window == 0) k.hf_expects_each("layer_types", "full_attention");
    expert_keys(k);
    expert_width_key(k);
    router_keys(k, kSigmoid);
    k["leading_dense_block_count"].hf_otherwise(int64_t{1});
    k["expert_shared_count"].in_hf("num_shared_experts").hf_otherwise(int64_t{1});
    k["expert_weights_norm"].hf_otherwise(true);
    k["expert_weights_scale"].hf_otherwise(2.5);
    std::vector<std::string> kinds;
    for (int64_t i = 0; i < n_layers; ++i) kinds.push_back(i < dense_layers ? "dense" : "sparse");
    k.hf_expects({"mlp_layer_types"}, {kinds});
    k.hf_expects({"hidden_act"}, {"silu"});
  }

  bool turns(int layer) const override { return window == 0 || has_window(layer); }
};

}  // namespace

extern const Architecture kExaoneMoe;
const Architecture kExaoneMoe{"exaone-moe", {"ExaoneMoeForCausalLM"}, make_model<ExaoneMoe>};

}  // namespace chaski
