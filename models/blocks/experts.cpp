#include "models/blocks/experts.h"

namespace chaski {

void Experts::expert_keys(Keys& k, const std::vector<std::string>& counts_in_hf) {
  k.integer(experts, "expert_count").range(0, 4096);
  key_names(k, "expert_count", counts_in_hf, experts);
  k.integer(chosen, "expert_used_count").in_hf("num_experts_per_tok").range(0, 4096);
}

void Experts::expect_experts_in_all_layers(Keys& k) {
  k.hf_expects({"decoder_sparse_step"}, {1});
  k.hf_expects({"mlp_only_layers"}, {std::vector<int64_t>{}});
}

void Experts::expert_width_key(Keys& k) {
  k.integer(expert_ffn, "expert_feed_forward_length")
      .in_hf("moe_intermediate_size")
      .range(2, 1 << 22);
}

void Experts::shared_width_key(Keys& k) {
  k.integer(shared_ffn, "expert_shared_feed_forward_length")
      .in_hf("shared_expert_intermediate_size")
      .range(2, 1 << 22);
}

void Experts::router_keys(Keys& k, int usual) {
  k.integer(dense_layers, "leading_dense_block_count")
      .in_hf("first_k_dense_replace")
      .range(0, 4096)
      .otherwise(int64_t{0});
  k.integer(shared_count, "expert_shared_count")
      .in_hf("n_shared_experts")
      .range(0, 4096)
      .gguf_otherwise(int64_t{0});
  k.integer(gating, "expert_gating_func")
      .not_in_hf()
      .range(kSoftMax, kSigmoid)
      .otherwise(int64_t{usual});
  k.flag(normalised, "expert_weights_norm")
      .in_hf("norm_topk_prob")
      .hf_null_is(false)
      .otherwise(false);
  k.number(expert_scale, "expert_weights_scale")
      .in_hf("routed_scaling_factor")
      .positive()
      .otherwise(1.0);
  k.integer(groups, "expert_group_count")
      .in_hf("n_group")
      .range(1, Route::kMostGroups)
      .otherwise(int64_t{1});
  k.integer(kept_groups, "expert_group_used_count")
      .in_hf("topk_group")
      .range(1, Route::kMostGroups)
      .otherwise(int64_t{1});
}

void Experts::normalised_key(Keys& k, bool usual_in_hf, bool in_gguf) {
  normalised = in_gguf;
  k.flag(normalised, "expert_weights_norm")
      .in_gguf_always(in_gguf)
      .in_hf("norm_topk_prob")
      .hf_otherwise(usual_in_hf)
      .gguf_otherwise(in_gguf)
      .optional();
}

void Experts::agree(const std::string& file) const {
  Llama::agree(file);
  if (experts == 0) return;
  expect_experts(file, experts, chosen,
                 {{"embedding_length", dim},
                  expert_ffn > 0 ? std::pair{"expert_feed_forward_length", expert_ffn}
                                 : std::pair{"feed_forward_length", ffn}});
  if (groups > 1 && (experts % groups || experts / groups < 2))
    fail(Exit::bad_file,
         "{}: model.expert_group_count is {}, expected groups of at least 2 of {} experts", file,
         groups, experts);
  if (kept_groups > groups || chosen > experts / groups * kept_groups)
    fail(Exit::bad_file,
         "{}: model.expert_group_used_count is {}, expected at most {}, with at least {} experts",
         file, kept_groups, groups, chosen);
}

void expect_experts(const std::string& file, int64_t experts, int64_t chosen,
                    std::initializer_list<std::pair<const char*, int64_t>> widths) {
  if (experts == 1)  // a router of one row would be a vector
    fail(Exit::bad_file, "{}: model.expert_count is 1, expected at least 2", file);
  if (chosen < 1 || chosen > experts)
    fail(Exit::bad_file, "{}: model.expert_used_count is {}, expected 1 to expert_count {}", file,
         chosen, experts);
  for (const auto& [key, rows] : widths)
    if (rows % kStrip || rows == 0)
      fail(Exit::bad_file, "{}: model.{} is {}, expected a multiple of {} in a mixture of experts",
           file, key, rows, kStrip);
}

void Experts::feed_slots(Slots& s, int64_t i) {
  if (!has_experts(i)) return Llama::feed_slots(s, i);
  mixtures.resize(layers.size());
  Mixture& m = mixtures[size_t(i)];
  m.experts = experts;
  const int64_t width = expert_ffn > 0 ? expert_ffn : ffn, rows = experts * width;
  s.add(m.router, "ffn_gate_inp", experts, dim)
      .in_hf(names.router)
      .as(Role::router)
      .with(router_bias);
  if (choice_bias != Bias::none) {
    Slots::Slot& bias =
        s.add(m.bias, "exp_probs_b.bias", 1, experts).in_hf(names.bias).bare_in_hf();
    if (choice_bias == Bias::maybe) bias.optional();
  }
  const auto add = [&](Linear& w, const char* name, int64_t n, int64_t cols, const char* hf,
                       RowOrder order, const char* one) {
    auto& slot = s.add(w, name, experts * n, cols).of_experts(experts, chosen).in_hf(hf, order);
    slot.with(expert_bias);
    if (bare_in_hf) slot.bare_in_hf();
    if (may_be_one_by_one) slot.or_one_by_one_in_hf(one);
  };
  const auto place = [&](bool up) {
    RowOrder order;
    if (gate_up_rows_in_turn)
      order = RowOrder::every_other(up, 2 * rows);
    else if (gate_up_in_one)
      order = part(up ? width : 0, 2 * rows).taking_turns(experts, rows);
    order.transposed = gate_up_transposed;
    return order;
  };
  const Names usual;
  add(m.gate, "ffn_gate_exps", width, dim, names.gate, place(false), usual.gate);
  add(m.up, "ffn_up_exps", width, dim, names.up, place(true), usual.up);
  add(m.down, "ffn_down_exps", dim, width, names.down, {down_transposed}, usual.down);
  if (shared_width() > 0) shared_slots(s, m);
}

void Experts::shared_slots(Slots& s, Mixture& m) const {
  const int64_t shared = shared_width();
  const std::string in_hf = names.shared;
  s.add(m.shared.gate, "ffn_gate_shexp", shared, dim).in_hf(in_hf + ".gate_proj");
  s.add(m.shared.up, "ffn_up_shexp", shared, dim).in_hf(in_hf + ".up_proj");
  s.add(m.shared.down, "ffn_down_shexp", dim, shared).in_hf(in_hf + ".down_proj");
  if (shared_is_gated) s.add(m.shared_gate, "ffn_gate_inp_shexp", 1, dim).in_hf(in_hf + "_gate");
}

ValueId Experts::feed(Graph& g, ValueId n, size_t i) const {
  if (!has_experts(int64_t(i))) return Llama::feed(g, n, i);
  const Mixture& m = mixtures[i];
  return consulted(g, n, linear(g, n, m.router), m);
}

ValueId Experts::consulted(Graph& g, ValueId n, ValueId scores, const Mixture& m) const {
  const Graph::Routed c = choose(g, scores, m);
  const ValueId y = g.mix(consult(g, n, m, c.experts), c.weights);
  return shared_width() > 0 ? g.add(y, shared(g, n, m)) : y;
}

Route Experts::route() const {
  Route r;
  r.score = gating == kSigmoid ? Route::Score::sigmoid : Route::Score::soft_max;
  r.rank = group_rank, r.groups = groups, r.kept = kept_groups;
  r.k = int(chosen), r.normalised = normalised, r.scale = expert_scale;
  return r;
}

ValueId Experts::shared(Graph& g, ValueId n, const Mixture& m) const {
  const ValueId y = gated(g, n, m.shared);
  if (!shared_is_gated) return y;
  const ValueId score = g.scale(g.mean_product(n, *m.shared_gate.weight), float(dim));
  return g.mix(y, g.activate(Activation::sigmoid, score));
}

}  // namespace chaski
