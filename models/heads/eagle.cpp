#include "models/heads/eagle.h"

namespace chaski {

EagleHead::EagleHead(const Decoder& target, int64_t columns, std::string path)
    : target_(target), columns_(columns), path_(std::move(path)) {
  for (const BoundWeight& w : target.weights)
    if (w.role == Role::token_table) table_ = w.weight;
}

void EagleHead::keys(Keys& k) {
  size_keys(k);
  rope_keys(k);
  rms_norm_key(k);
  k.hf_expects({"hidden_act"}, {"silu"});
}

void EagleHead::agree(const std::string& file) const {
  if (dim != columns_)
    fail(Exit::bad_file, "{}: hidden_size is {}, expected {}, as in {}", file, dim, columns_,
         path_);
  if (vocab != target_.vocab)
    fail(Exit::bad_file, "{}: vocab_size is {}, expected {}, as in {}", file, vocab, target_.vocab,
         path_);
  Decoder::agree(file);
}

void EagleHead::bound(const std::string& file) {
  Decoder::bound(file);
  row_columns = columns_;
}

void Eagle1::tensors(Slots& s) {
  layers_.resize(size_t(n_layers));
  s.hf_prefix = "model.";
  s.hf_unread = {".rotary_emb.inv_freq"};
  s.add(of_token_, "fc_token", dim, dim).in_hf("fc").with(Bias::maybe);
  s.add(of_row_, "fc_row", dim, dim).in_hf("fc");
  for (int64_t i = 0; i < n_layers; ++i) {
    Layer& l = layers_[size_t(i)];
    s.layer(i, "layers.");
    if (i > 0) s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
    attention_slots(s, l.attn, Bias::maybe, {});
    s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
    gated_slots(s, l.ffn);
  }
}

void Eagle1::build(Graph& g) const {
  const ValueId row = g.take_input(row_columns);
  ValueId x = g.add(linear(g, g.get_rows(*table_), of_token_), linear(g, row, of_row_));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& l = layers_[i];
    x = g.add(x, attention(g, i > 0 ? rms_norm(g, x, l.attn_norm) : x, l.attn, int(i)));
    x = g.add(x, gated(g, rms_norm(g, x, l.ffn_norm), l.ffn));
  }
  target_.logits(g, g.take_outputs(x));
}

void Eagle3::keys(Keys& k) {
  EagleHead::keys(k);
  k.integer(draft_vocab, "draft_vocab_size")
      .in_hf("draft_vocab_size")
      .range(2, 1 << 24)
      .otherwise([this] { return int64_t{vocab}; });
  const int64_t n = target_.n_layers;
  const std::vector<int64_t> usual{2, n / 2, n - 3};
  k.integers(layers_read, "eagle_aux_hidden_state_layer_ids", kLayersRead)
      .in_hf({"eagle_aux_hidden_state_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids"})
      .range(0, n - 1)
      .otherwise([=, this](const std::string& file) -> std::optional<Given> {
        if (n < kLeastLayers)
          fail(
              Exit::bad_file,
              "{}: eagle_aux_hidden_state_layer_ids is missing, expected it for {} with {} layers: "
              "the default needs at least {}",
              file, target_path(), n, kLeastLayers);
        return usual;
      });
  k.hf_expects({"norm_before_residual"}, {false});
  k.hf_expects({"eagle_config.use_aux_hidden_state"}, {true});
}

void Eagle3::agree(const std::string& file) const {
  EagleHead::agree(file);
  if (n_layers != 1)
    fail(Exit::bad_file, "{}: num_hidden_layers is {}, expected 1", file, n_layers);
  if (draft_vocab > vocab)
    fail(Exit::bad_file, "{}: draft_vocab_size is {}, expected up to vocab_size {}", file,
         draft_vocab, vocab);
}

void Eagle3::tensors(Slots& s) {
  s.hf_prefix = "model.";
  s.hf_unread = {".rotary_emb.inv_freq"};
  s.add(rows_of[0], "fc_low", dim, dim).in_hf("fc");
  s.add(rows_of[1], "fc_middle", dim, dim).in_hf("fc");
  s.add(rows_of[2], "fc_high", dim, dim).in_hf("fc");
  s.layer(0, "layers.");
  s.add(token_norm_, "token_norm", 1, dim).in_hf("input_layernorm");
  s.add(row_norm_, "row_norm", 1, dim).in_hf("hidden_norm");
  const auto both = [&](Halves& of, const std::string& name, int64_t rows, RowOrder order) {
    const std::string hf = "self_attn." + name + "_proj";
    s.add(of.token, "attn_" + name + "_token", rows, dim).in_hf(hf, order).with(Bias::maybe);
    s.add(of.row, "attn_" + name + "_row", rows, dim).in_hf(hf, order);
  };
  both(q_, "q", q_rows(), halves());
  both(k_, "k", kv_rows(), halves());
  both(v_, "v", kv_rows(), {});
  s.add(attn_output_, "attn_output", dim, q_rows()).in_hf("self_attn.o_proj");
  s.add(ffn_norm_, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
  gated_slots(s, ffn_);
  s.after_layers();
  s.add(output_norm, "output_norm", 1, dim).in_hf("norm");
  s.add(head_, "output", draft_vocab, dim).in_hf("lm_head").as(Role::head);
}

// Some programs number the inputs of layers, others the outputs. If the numbers are the default
// ones of the second kind, they are converted.
void Eagle3::bound(const std::string& file) {
  EagleHead::bound(file);
  const int64_t n = target_.n_layers;
  if (n >= kLeastLayers && layers_read == std::vector{int64_t{1}, n / 2 - 1, n - 4})
    for (int64_t& layer : layers_read) ++layer;
}

void Eagle3::build(Graph& g) const {
  const ValueId row = g.take_input(row_columns),
                by_token = rms_norm(g, g.get_rows(*table_), token_norm_),
                by_row = rms_norm(g, row, row_norm_);
  const auto over_both = [&](const Halves& w) {
    return g.add(linear(g, by_token, w.token), linear(g, by_row, w.row));
  };
  const ValueId q = over_both(q_), k = over_both(k_), v = over_both(v_);
  ValueId x = g.add(row, linear(g, attention_of(g, q, k, v, 0), attn_output_));
  x = g.take_outputs(g.add(x, gated(g, rms_norm(g, x, ffn_norm_), ffn_)));
  g.set_result(linear(g, rms_norm(g, x, output_norm), head_), x);
}

void NextLayer::keys(Keys& k) {
  EagleHead::keys(k);
  k["block_count"].in_hf("num_nextn_predict_layers");
  k.hf_expects({"use_sliding_window"}, {false});
}

void NextLayer::agree(const std::string& file) const {
  EagleHead::agree(file);
  if (n_layers != 1)
    fail(Exit::bad_file, "{}: num_nextn_predict_layers is {}, expected 1", file, n_layers);
}

void NextLayer::tensors(Slots& s) {
  s.hf_prefix = "model.";
  s.hf_unread = {".rotary_emb.inv_freq"};
  s.layer(0, "mtp_layers.");
  s.add(row_norm_, "row_norm", 1, dim).in_hf("hidden_layernorm");
  s.add(token_norm_, "token_norm", 1, dim).in_hf("token_layernorm");
  s.add(of_row_, "fc_row", dim, dim).in_hf("input_proj");
  s.add(of_token_, "fc_token", dim, dim).in_hf("input_proj");
  s.add(attn_norm_, "attn_norm", 1, dim).in_hf("input_layernorm");
  attention_slots(s, attn_, Bias::maybe, {});
  s.add(ffn_norm_, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
  gated_slots(s, ffn_);
  s.add(output_norm, "output_norm", 1, dim).in_hf("final_layernorm");
}

void NextLayer::build(Graph& g) const {
  const ValueId row = rms_norm(g, g.take_input(row_columns), row_norm_),
                token = rms_norm(g, g.get_rows(*table_), token_norm_);
  ValueId x = g.add(linear(g, row, of_row_), linear(g, token, of_token_));
  x = g.add(x, attention(g, rms_norm(g, x, attn_norm_), attn_, 0));
  x = g.add(x, gated(g, rms_norm(g, x, ffn_norm_), ffn_));
  target_.logits(g, rms_norm(g, g.take_outputs(x), output_norm));
}

}  // namespace chaski
