// Granite 3: Llama with four scale factors, for embeddings, scores, residuals and logits. The
// models named A400M and A800M have experts in all layers.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Granite : public Experts {
 protected:
  void keys(Keys& k) override {
    Llama::keys(k);
    factor_keys(k);
  }
};

class GraniteMoe : public Granite {
 public:
  GraniteMoe() {
    names = {"block_sparse_moe.router.layer", "block_sparse_moe.input_linear",
             "block_sparse_moe.input_linear", "block_sparse_moe.output_linear"};
    gate_up_in_one = true;
  }

  void keys(Keys& k) override {
    Granite::keys(k);
    expert_keys(k, {"num_local_experts"});
  }
};

// Granite with windows in three of four layers, and with attention sinks. config.json has a theta
// for each layer; 0 is a layer without rotary positions.
class GraniteSwa : public Granite {
 public:
  GraniteSwa() { sinks = true; }

 private:
  std::vector<float> layer_thetas;
  std::vector<int64_t> turned;  // 1 for each layer with rotary positions, else 0
  bool own_thetas = false;      // a layer has another theta than the model

  void keys(Keys& k) override {
    Granite::keys(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k["sliding_window"].in_hf("sliding_window").hf_null_is(int64_t{0}).hf_otherwise(int64_t{128});
    window_pattern_key(k, 4);
    k["window_layers"].hf_otherwise([this] {
      std::vector<int64_t> list;
      for (int64_t i = 0; i < n_layers; ++i) list.push_back(i % 4 != 0);
      return Given(list);
    });
    k.numbers(layer_thetas, "rope_layer_thetas", [this] { return n_layers; })
        .not_in_gguf()
        .in_hf("layer_rope_theta")
        .between(0, 1e12)
        .optional();
    k.flags(turned, "rope_layers", n_layers)
        .in_gguf("attention.rope_pattern")
        .not_in_hf()
        .otherwise([this] {
          std::vector<int64_t> list(size_t(n_layers), 1);
          for (size_t i = 0; i < layer_thetas.size(); ++i) list[i] = layer_thetas[i] != 0;
          return Given(list);
        });
    k.flag(own_thetas, "rope_own_thetas").in_gguf_always(0).not_in_hf().otherwise([this] {
      bool own = false;
      for (const float theta : layer_thetas) own |= theta != 0 && theta != float(rope.theta);
      return Given(own);
    });
    k.hf_tied = true;
  }

  bool turns(int layer) const override { return turned[size_t(layer)] == 1; }
  RopeSpec rope_of(int layer) const override {
    RopeSpec spec = rope;
    if (own_thetas && !layer_thetas.empty()) spec.theta = layer_thetas[size_t(layer)];
    return spec;
  }
};

}  // namespace

extern const Architecture kGranite, kGraniteMoe, kGraniteSwa;
const Architecture kGranite{"granite", {"GraniteForCausalLM"}, make_model<Granite>};
const Architecture kGraniteMoe{"granitemoe", {"GraniteMoeForCausalLM"}, make_model<GraniteMoe>};
const Architecture kGraniteSwa{"granite_swa", {"GraniteSWAForCausalLM"}, make_model<GraniteSwa>};

}  // namespace chaski
