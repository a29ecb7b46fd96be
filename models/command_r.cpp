// Command R, without the norms of queries and keys that Command R+ has.
#include "models/cohere.h"

namespace chaski {

void Cohere::cohere_keys(Keys& k) {
  layer_norm_key(k);
  k["norm_epsilon"].in_hf("layer_norm_eps");
  k.number(logit_scale, "logit_scale").in_hf("logit_scale").hf_otherwise(0.0625).positive();
  k.hf_expects({"hidden_act"}, {"silu"});
  k.hf_expects({"attention_bias"}, {false});
  k.hf_expects({"use_qk_norm"}, {false});
  k.hf_tied = true;
}

void Cohere::tensors(Slots& s) {
  layers.resize(size_t(n_layers));
  token_slot(s);
  for (int64_t i = 0; i < n_layers; ++i) {
    Layer& l = layers[size_t(i)];
    s.layer(i, "layers.");
    s.add(l.norm, "attn_norm", 1, dim).in_hf("input_layernorm");
    attention_slots(s, l.attn, Bias::none, {}, {});
    gated_slots(s, l.ffn);
  }
  end_slots(s);
}

void Cohere::build(Graph& g) const {
  ValueId x = g.get_rows(*token_embd.weight);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& l = layers[i];
    const ValueId n = layer_norm(g, x, l.norm);
    x = g.add(x, attention(g, n, l.attn, int(i)));
    x = g.add(x, gated(g, n, l.ffn));
  }
  logits(g, layer_norm(g, g.take_outputs(x), output_norm));
}

namespace {

class CommandR : public Cohere {
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    cohere_keys(k);
  }
};

}  // namespace

extern const Architecture kCommandR;
const Architecture kCommandR{"command-r", {"CohereForCausalLM"}, make_model<CommandR>};

}  // namespace chaski
