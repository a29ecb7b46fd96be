// GroveMoE (33B): Qwen 3 with experts in all layers. Neighbouring experts form groups, and each
// group has a small expert of its own, an adjugate. It computes for every chosen member of the
// group, with that member's weight times a constant. Source: Wu et al. 2025, "Grove MoE".
#include <algorithm>

#include "models/blocks/experts.h"

namespace chaski {

namespace {

class GroveMoe : public Experts {
 public:
  GroveMoe() { head_norms = half_split_in_gguf = true; }

 private:
  int64_t group = 2;         // experts in a group
  int64_t adjugate_ffn = 0;  // the width of a group's own expert
  float adjugate_scale = .05f;
  std::vector<ExpertMatrices> adjugates;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    expert_keys(k);
    expert_width_key(k);
    // The authors' code has constants for these three; the width is that of a head.
    k.integer(group, "experts_per_group").not_in_hf().range(1, 4096).otherwise(int64_t{2});
    k.integer(adjugate_ffn, "expert_chunk_feed_forward_length")
        .not_in_hf()
        .range(2, 1 << 22)
        .otherwise([this] { return int64_t{head_dim}; });
    k.number(adjugate_scale, "expert_group_scale").not_in_hf().otherwise(0.05).positive();
    expect_experts_in_all_layers(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"norm_topk_prob"}, {true});
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"use_sliding_window"}, {false});
  }

  void agree(const std::string& file) const override {
    Experts::agree(file);
    if (experts % group || experts < 2 * group)
      fail(Exit::bad_file,
           "{}: model.experts_per_group is {}, expected a divisor of {} experts with at least 2 "
           "groups",
           file, group, experts);
    expect_experts(file, experts / group, 1, {{"expert_chunk_feed_forward_length", adjugate_ffn}});
  }

  void tensors(Slots& s) override {
    Experts::tensors(s);
    s.hf_unread.push_back(".mlp.expert_bias");  // for training
  }

  void feed_slots(Slots& s, int64_t i) override {
    Experts::feed_slots(s, i);
    adjugates.resize(layers.size());
    ExpertMatrices& m = adjugates[size_t(i)];
    m.experts = experts / group;
    const auto add = [&](Linear& w, const char* name, int64_t n, int64_t cols, const char* hf) {
      s.add(w, name, m.experts * n, cols)
          .of_experts(m.experts, std::min(chosen, m.experts))
          .in_hf(hf);
    };
    add(m.gate, "ffn_gate_chexps", adjugate_ffn, dim, "mlp.chunk_experts.*.gate_proj");
    add(m.up, "ffn_up_chexps", adjugate_ffn, dim, "mlp.chunk_experts.*.up_proj");
    add(m.down, "ffn_down_chexps", dim, adjugate_ffn, "mlp.chunk_experts.*.down_proj");
  }

  ValueId feed(Graph& g, ValueId n, size_t i) const override {
    const Mixture& m = mixtures[i];
    const ValueId scores = linear(g, n, m.router);
    Route of_groups = route();
    of_groups.sharing = int(group);
    const Graph::Routed own = g.route(scores, route()), shared = g.route(scores, of_groups);
    const ValueId small = g.mix(consult(g, n, adjugates[i], shared.experts), shared.weights);
    return g.add(g.mix(consult(g, n, m, own.experts), own.weights), g.scale(small, adjugate_scale));
  }
};

}  // namespace

extern const Architecture kGroveMoe;
const Architecture kGroveMoe{"grovemoe", {"GroveMoeForCausalLM"}, make_model<GroveMoe>};

}  // namespace chaski
