// SmolLM3: Llama with no positions in every fourth layer.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class SmolLm3 : public Llama {
 public:
  SmolLm3() { qkv_bias = Bias::none; }

 private:
  std::vector<int64_t> turned;  // 1 for each layer with rotary positions, else 0

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].hf_otherwise(2e6);
    rms_norm_key(k);
    k.integers(turned, "rope_layers", n_layers)
        .in_hf("no_rope_layers")
        .range(0, 1)
        .otherwise([this] {
          std::vector<int64_t> usual;
          for (int64_t i = 1; i <= n_layers; ++i) usual.push_back(i % 4 != 0);
          return usual;
        });
    k.hf_expects({"no_rope_layer_interval"}, {4});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_sliding_window"}, {false});
    k.hf_expects_each("layer_types", "full_attention");
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"mlp_bias"}, {false});
    k.hf_tied = true;
  }

  bool turns(int layer) const override { return turned[size_t(layer)] == 1; }
};

}  // namespace

extern const Architecture kSmolLm3;
const Architecture kSmolLm3{"smollm3", {"SmolLM3ForCausalLM"}, make_model<SmolLm3>};

}  // namespace chaski
