// SmallThinker (4B-A0.6B, 21B-A3B): experts with a gate of relu in all layers. The router reads the
// residual stream before the attention of its layer. In 21B, every fourth layer from the first on
// has neither a window nor rotary positions; 4B has no windows.
#include <algorithm>

#include "models/blocks/experts.h"

namespace chaski {

namespace {

class SmallThinker : public Experts {
 public:
  SmallThinker() {
    half_split_in_gguf = true, qkv_bias = Bias::none;
    names = {"block_sparse_moe.primary_router", "block_sparse_moe.experts.*.gate",
             "block_sparse_moe.experts.*.up", "block_sparse_moe.experts.*.down"};
  }

 private:
  std::vector<int64_t> layout;  // of config.json: 1 for each layer with a window, else 0
  std::vector<int64_t> turned;  // 1 for each layer with rotary positions, else 0
  bool soft = false;            // the router scores by a soft-max
  bool unusual = false;         // other layers than in the published models

  // 1 for each layer that has a window in the published models.
  std::vector<int64_t> usual_windows() const {
    std::vector<int64_t> list;
    for (int64_t i = 0; i < n_layers; ++i) list.push_back(window > 0 && i % 4 != 0);
    return list;
  }
  std::vector<int64_t> usual_turns() const {
    return window > 0 ? usual_windows() : std::vector<int64_t>(size_t(n_layers), 1);
  }

  void keys(Keys& k) override {
    size_keys(k);
    k["head_dim"].hf_otherwise(int64_t{128});
    k["feed_forward_length"].in_hf("moe_ffn_hidden_size");
    rope_keys(k);
    k["rope_theta"].hf_otherwise(1e6);
    rms_norm_key(k);
    const auto all = [this](int64_t on) {
      return Given(std::vector<int64_t>(size_t(n_layers), on));
    };
    k.flags(layout, "window_layout", n_layers)
        .not_in_gguf()
        .in_hf("sliding_window_layout")
        .hf_otherwise([=] { return all(0); })
        .optional();
    window_key(k);
    k["sliding_window"]
        .in_hf("sliding_window_size")
        .ignored_in_hf_if([this] { return std::ranges::count(layout, 1) == 0; })
        .hf_otherwise(int64_t{4096});
    k.flags(windowed, "window_layers", n_layers).not_in_gguf().not_in_hf().otherwise([this] {
      return layout.empty() ? usual_windows() : layout;
    });
    k.flags(turned, "rope_layers", n_layers)
        .not_in_gguf()
        .in_hf("rope_layout")
        .hf_otherwise([=] { return all(1); })
        .otherwise([this] { return usual_turns(); });
    k.flag(unusual, "layers_are_unusual").in_gguf_always(0).not_in_hf().otherwise([this] {
      return windowed != usual_windows() || turned != usual_turns();
    });
    expert_keys(k, {"moe_num_primary_experts"});
    k["expert_count"].range(2, 4096);  // all layers have experts
    k["expert_used_count"].in_hf("moe_num_active_primary_experts");
    expert_width_key(k);
    k["expert_feed_forward_length"].in_hf("moe_ffn_hidden_size");
    k.flag(soft, "router_soft_max")
        .not_in_gguf()
        .in_hf("moe_primary_router_apply_softmax")
        .optional();
    k.integer(gating, "expert_gating_func").not_in_hf().range(kSoftMax, kSigmoid).otherwise([this] {
      return int64_t{soft ? kSoftMax : kSigmoid};
    });
    k.hf_expects({"moe_enable_early_router"}, {true});
    k.hf_expects({"moe_enable_secondary_experts"}, {false});
    k.hf_expects({"moe_layer_layout"}, {std::vector<int64_t>(size_t(n_layers), 1)});
    k.hf_expects({"use_qk_norm"}, {false});
    k.hf_tied = true;
  }

  bool turns(int layer) const override { return turned[size_t(layer)]; }
  ValueId gate(Graph& g, ValueId gates, ValueId ups) const override {
    return g.mul(g.activate(Activation::relu, gates), ups);
  }

  void build(Graph& g) const override {
    ValueId x = embedding(g);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId scores = linear(g, x, mixtures[i].router);
      x = g.add(x, attend(g, rms_norm(g, x, l.attn_norm), i));
      x = g.add(x, consulted(g, rms_norm(g, x, l.ffn_norm), scores, mixtures[i]));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kSmallThinker;
const Architecture kSmallThinker{"smallthinker",
                                 {"SmallThinkerForCausalLM", "SmallthinkerForCausalLM"},
                                 make_model<SmallThinker>};

}  // namespace chaski
