#include "models/blocks/gpt.h"

namespace chaski {

void Gpt::embedding_slots(Slots& s, const char* tokens, const char* positions) {
  layers.resize(size_t(n_layers));
  s.add(token_embd, "token_embd", vocab, dim).in_hf(tokens).as(Role::token_table);
  if (positions)
    s.add(position_embd, "position_embd", context, dim).in_hf(positions).as(Role::position_table);
}

void Gpt::layer_slots(Slots& s, const Names& hf, int64_t turns, Bias bias) {
  for (int64_t i = 0; i < n_layers; ++i) {
    Layer& l = layers[size_t(i)];
    s.layer(i, hf.layers);
    norm_slot(s, l.attn_norm, "attn_norm", hf.attn_norm, bias);
    if (hf.qkv) {
      fused_slots(s, l.attn, hf.qkv, turns, bias, true);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf(hf.attn_output).with(bias);
    } else {
      attention_slots(s, l.attn, bias, halves()).with(bias);
    }
    norm_slot(s, l.ffn_norm, "ffn_norm", hf.ffn_norm, bias);
    s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf(hf.ffn_up).with(bias);
    s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf(hf.ffn_down).with(bias);
  }
}

void Gpt::build(Graph& g) const {
  ValueId x = g.get_rows(*token_embd.weight);
  if (token_embd_norm.weight) x = layer_norm(g, x, token_embd_norm);
  if (position_embd.weight) x = g.add(x, g.get_rows(*position_embd.weight, GetRows::By::position));
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& l = layers[i];
    x = g.add(x, attention(g, layer_norm(g, x, l.attn_norm), l.attn, int(i)));
    x = g.add(x, plain(g, layer_norm(g, x, l.ffn_norm), l.ffn));
  }
  logits(g, layer_norm(g, g.take_outputs(x), output_norm));
}

}  // namespace chaski
