// Mixtures of experts (Shazeer et al. 2017) as the feed-forward of Llama's layers. A router chooses
// some of a layer's experts for each token. Their results are added, each times its weight. A
// shared expert, if there is one, computes every token.
#pragma once
#include "models/blocks/llama.h"

namespace chaski {

// Throws Error(bad_file) if a token cannot choose `chosen` of `experts`, or if a width is no whole
// number of strips, in which experts are stored one below the other. Names of `widths` are for the
// message.
void expect_experts(const std::string& file, int64_t experts, int64_t chosen,
                    std::initializer_list<std::pair<const char*, int64_t>> widths);

// The matrices of a mixture's experts, each kind in one tensor.
struct ExpertMatrices {
  int64_t experts = 0;
  Linear gate, up, down;
};
// The experts' results of `x`, which has a row for each token or for each chosen expert.
// `inner(gates, ups)` makes the inputs of their last matrices.
template <class Inner>
ValueId consult_experts(Graph& g, ValueId x, const ExpertMatrices& m, ValueId chosen, Inner inner) {
  const auto expert = [&](ValueId of, const Linear& w) {
    return g.expert_matmul(of, *w.weight, int(m.experts), chosen, w.bias);
  };
  const ValueId gates = expert(x, m.gate), ups = expert(x, m.up);
  return expert(inner(gates, ups), m.down);
}

class Experts : public Llama {
 public:
  void agree(const std::string& file) const override;

 protected:
  int64_t experts = 0;           // of a layer; 0: no layer has any
  int64_t chosen = 0;            // of them, for a token
  int64_t expert_ffn = 0;        // the width of an expert; 0: feed_forward_length
  int64_t shared_ffn = 0;        // the width of the shared expert; 0: that of shared_count experts
  int64_t shared_count = 0;      // width of the shared expert in experts; 0: there is none
  bool shared_is_gated = false;  // a sigmoid of the token scales the result of the shared expert
  int64_t dense_layers = 0;      // the first layers, which have no experts
  // How the router scores experts, and what it does with the weights (ops/route.h).
  enum { kSoftMax = 1, kSigmoid = 2 };  // GGUF's numbers
  int gating = kSoftMax;
  bool normalised = true;  // the weights of a token's experts add up to 1
  float expert_scale = 1;
  Bias choice_bias = Bias::none;  // a bias of the scores for the choice only
  int groups = 1, kept_groups = 1;
  Route::Rank group_rank = Route::Rank::sum_of_two;

  // Hugging Face's names inside a layer; "*" is the number of an expert.
  struct Names {
    const char* router = "mlp.gate";
    const char *gate = "mlp.experts.*.gate_proj", *up = "mlp.experts.*.up_proj",
               *down = "mlp.experts.*.down_proj";
    const char* shared = "mlp.shared_expert";
    const char* bias = "mlp.gate.e_score_correction_bias";  // of the router's scores
  };
  static Names mixtral_names() {
    return {"block_sparse_moe.gate", "block_sparse_moe.experts.*.w1",
            "block_sparse_moe.experts.*.w3", "block_sparse_moe.experts.*.w2"};
  }
  Names names;
  // Hugging Face files have all gates and ups of a layer in one tensor: those of each expert one
  // after the other, or their rows in turn.
  bool gate_up_in_one = false, gate_up_rows_in_turn = false;
  // In Hugging Face files the names of experts do not end in ".weight".
  bool bare_in_hf = false;
  // Hugging Face files may have the experts one by one instead, under the default names.
  bool may_be_one_by_one = false;
  // There an expert's matrices of gate and up, or that of down, are (in, out).
  bool gate_up_transposed = false, down_transposed = false;
  Bias router_bias = Bias::none, expert_bias = Bias::none;

  // Numbers of experts: all of a layer, and those of a token.
  // config.json has the first under one or more of `counts_in_hf`.
  void expert_keys(Keys& keys, const std::vector<std::string>& counts_in_hf = {"num_experts"});
  // Qwen's keys about layers without experts, which must say that there are none.
  static void expect_experts_in_all_layers(Keys& keys);
  void expert_width_key(Keys& keys);
  void shared_width_key(Keys& keys);  // shared_ffn, under Qwen's name
  // The keys of DeepSeek's routers: dense layers, shared experts, gating, scale and groups. Without
  // them the gating is `usual`.
  void router_keys(Keys& keys, int usual);
  // GGUF files do not have `normalised`: their models always have this value.
  void normalised_key(Keys& keys, bool usual_in_hf, bool in_gguf);

  void feed_slots(Slots& slots, int64_t i) override;
  ValueId feed(Graph& g, ValueId n, size_t i) const override;
  // The inner values of the experts, from their gates and ups.
  virtual ValueId gate(Graph& g, ValueId gates, ValueId ups) const {
    return g.mul(g.silu(gates), ups);
  }

  struct Mixture : ExpertMatrices {
    Linear router, bias;
    GatedWeights shared;
    Linear shared_gate;
  };
  std::vector<Mixture> mixtures;
  ValueId consult(Graph& g, ValueId x, const ExpertMatrices& m, ValueId chosen_experts) const {
    return consult_experts(g, x, m, chosen_experts,
                           [&](ValueId gates, ValueId ups) { return gate(g, gates, ups); });
  }
  // What a mixture makes of `n`, with the scores of its router.
  ValueId consulted(Graph& g, ValueId n, ValueId scores, const Mixture& m) const;
  ValueId shared(Graph& g, ValueId n, const Mixture& m) const;
  virtual void shared_slots(Slots& slots, Mixture& m) const;
  // A token's experts and their weights.
  virtual Graph::Routed choose(Graph& g, ValueId scores, const Mixture& m) const {
    return g.route(scores, route(), m.bias.weight);
  }
  Route route() const;
  virtual bool has_experts(int64_t layer) const { return experts > 0 && layer >= dense_layers; }
  int64_t shared_width() const { return shared_ffn > 0 ? shared_ffn : shared_count * expert_ffn; }
};

}  // namespace chaski
