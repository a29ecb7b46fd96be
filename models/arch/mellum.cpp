// Mellum 2 (12B-A2.5B): Qwen 3 with experts in all layers, and with windows. Layers with a window
// have another theta and no scaling. (Mellum 1 is a Llama.)
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Mellum : public Experts {
 public:
  Mellum() { head_norms = half_split_in_gguf = true; }

 private:
  double window_theta = 0;

  void keys(Keys& k) override {
    size_keys(k);
    k["head_dim"].hf_otherwise(int64_t{128});
    rope_keys(k);
    k["rope_theta"].hf_otherwise(500000.0);
    k.number(window_theta, "rope_theta_of_windows")
        .in_gguf("rope.freq_base_swa")
        .in_hf("rope_parameters.sliding_attention.rope_theta")
        .hf_otherwise(10000.0)
        .otherwise([this] { return rope.theta; })
        .positive();
    rms_norm_key(k);
    window_key(k);
    k["sliding_window"].hf_null_is(int64_t{0}).hf_otherwise(int64_t{1024});
    window_pattern_key(k, 4);
    k["window_layers"].when([this] { return window > 0; }).hf_otherwise([this] {
      return Given(std::vector<int64_t>(size_t(n_layers), 0));
    });
    expert_keys(k, {"num_experts", "num_local_experts"});
    expert_width_key(k);
    normalised_key(k, true, true);
    k.hf_expects_each("mlp_layer_types", "sparse");
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"rope_parameters.sliding_attention.rope_type"}, {"default"});
    // Each kind of layer has an object; transformers reads no other place.
    for (const char* place : {"rope_parameters.rope_type", "rope_parameters.type",
                              "rope_parameters.rope_theta", "rope_scaling", "rope_theta"})
      k.hf_expects({place}, {});
    k.hf_tensors("attention_bias", attention_biases());
  }

  void tensors(Slots& s) override {
    s.hf_other_parts = {"mtp."};
    Experts::tensors(s);
  }

  RopeSpec rope_of(int layer) const override {
    if (window == 0 || !has_window(layer)) return rope;
    RopeSpec near;  // without scaling
    near.dim = rope.dim, near.theta = window_theta;
    return near;
  }
};

}  // namespace

extern const Architecture kMellum;
const Architecture kMellum{"mellum", {"MellumForCausalLM"}, make_model<Mellum>};

}  // namespace chaski
