// Command R, and Command R+, which has layer norms of each head's queries and keys.
#include "models/blocks/cohere.h"

namespace chaski {

void Cohere::cohere_keys(Keys& k) {
  layer_norm_key(k);
  k["norm_epsilon"].in_hf("layer_norm_eps");
  k.number(logit_scale, "logit_scale").in_hf("logit_scale").hf_otherwise(0.0625).positive();
  k.hf_expects({"hidden_act"}, {"silu"});
  k.hf_expects({"attention_bias"}, {false});
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
    const auto norm = [&](Linear& member, const char* name, int64_t of, const char* hf) {
      auto& slot = s.add(member, name, 1, of * head_dim).in_hf(hf).matrix_of(of);
      if (!head_norms) slot.optional();
    };
    norm(l.attn.q_norm, "attn_q_norm", heads, "self_attn.q_norm");
    norm(l.attn.k_norm, "attn_k_norm", kv_heads, "self_attn.k_norm");
    gated_slots(s, l.ffn);
  }
  end_slots(s);
}

void Cohere::bound(const std::string& file) {
  Decoder::bound(file);
  zero_.assign(size_t(q_rows()), 0);
  no_bias_ = {{"zeros_of_heads", Format::f32, 1, q_rows()},
              reinterpret_cast<const std::byte*>(zero_.data())};
}

ValueId Cohere::mixed(Graph& g, ValueId n, const AttentionWeights& w, int layer) const {
  ValueId q = linear(g, n, w.q), k = linear(g, n, w.k);
  const ValueId v = linear(g, n, w.v);
  if (w.q_norm.weight) q = g.layer_norm(q, *w.q_norm.weight, no_bias_, eps, heads);
  if (w.k_norm.weight) k = g.layer_norm(k, *w.k_norm.weight, no_bias_, eps, kv_heads);
  return linear(g, attention_of(g, q, k, v, layer), w.output);
}

void Cohere::build(Graph& g) const {
  ValueId x = g.get_rows(*token_embd.weight);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& l = layers[i];
    const ValueId n = layer_norm(g, x, l.norm);
    x = g.add(x, mixed(g, n, l.attn, int(i)));
    x = g.add(x, gated(g, n, l.ffn));
  }
  logits(g, layer_norm(g, g.take_outputs(x), output_norm));
}

namespace {

class CommandR : public Cohere {
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].hf_otherwise(500000.0);
    cohere_keys(k);
    k.flag(head_norms, "head_norms").not_in_gguf().in_hf("use_qk_norm").optional();
    k.hf_tensors("use_qk_norm", {".q_norm.weight", ".k_norm.weight"});
  }
};

}  // namespace

extern const Architecture kCommandR;
const Architecture kCommandR{"command-r", {"CohereForCausalLM"}, make_model<CommandR>};

}  // namespace chaski
