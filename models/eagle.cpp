#include "models/eagle.h"

namespace chaski {

Eagle::Eagle(const Decoder& target, int64_t columns, std::string path)
    : target_(target), columns_(columns), path_(std::move(path)) {
  for (const BoundWeight& w : target.weights)
    if (w.role == Role::token_table) table_ = w.weight;
}

void Eagle::keys(Keys& k) {
  size_keys(k);
  rope_keys(k);
  rms_norm_key(k);
  k.hf_expects({"hidden_act"}, {"silu"});
}

void Eagle::agree(const std::string& file) const {
  if (dim != columns_)
    fail(Exit::bad_file, "{}: hidden_size is {}, expected {}, as in {}", file, dim, columns_,
         path_);
  if (vocab != target_.vocab)
    fail(Exit::bad_file, "{}: vocab_size is {}, expected {}, as in {}", file, vocab, target_.vocab,
         path_);
  Decoder::agree(file);
}

void Eagle::tensors(Slots& s) {
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

void Eagle::bound(const std::string& file) {
  Decoder::bound(file);
  row_columns = columns_;
}

void Eagle::build(Graph& g) const {
  const ValueId row = g.take_input(row_columns);
  ValueId x = g.add(linear(g, g.get_rows(*table_), of_token_), linear(g, row, of_row_));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& l = layers_[i];
    x = g.add(x, attention(g, i > 0 ? rms_norm(g, x, l.attn_norm) : x, l.attn, int(i)));
    x = g.add(x, gated(g, rms_norm(g, x, l.ffn_norm), l.ffn));
  }
  target_.logits(g, g.take_outputs(x));
}

}  // namespace chaski
