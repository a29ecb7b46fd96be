// dots.llm1: Qwen 3's layers, the first of them dense. The others choose experts by a sigmoid with
// a bias, and have a shared expert. Published models have no layers with windows.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Dots1 : public Experts {
 public:
  Dots1() {
    head_norms = half_split_in_gguf = true;
    choice_bias = Bias::always, names.shared = "mlp.shared_experts";
  }

  int64_t whole_layers = 4096;  // the first layers, which have no window

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    expert_keys(k, {"n_routed_experts", "num_local_experts"});
    expert_width_key(k);
    router_keys(k, kSigmoid);
    window_key(k);
    k["sliding_window"].hf_null_is(int64_t{0}).hf_otherwise(int64_t{4096});
    k.integer(whole_layers, "layers_without_window")
        .not_in_gguf()
        .in_hf("max_window_layers")
        .range(0, 4096)
        .hf_otherwise(int64_t{62})
        .optional();
    window_pattern_key(k, 0);
    k["window_layers"].in_hf("layer_types").when([this] { return window > 0; }).otherwise([this] {
      std::vector<int64_t> list;
      for (int64_t i = 0; i < n_layers; ++i) list.push_back(i >= whole_layers);
      return Given(list);
    });
    if (window == 0) k.hf_expects_each("layer_types", "full_attention");
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_tensors("attention_bias", attention_biases());
  }
};

}  // namespace

extern const Architecture kDots1;
const Architecture kDots1{"dots1", {"Dots1ForCausalLM"}, make_model<Dots1>};

}  // namespace chaski
