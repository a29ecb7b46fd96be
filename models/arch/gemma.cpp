// Gemma 1, and what it shares with its successors.
#include "models/blocks/gemma.h"

namespace chaski {

void Gemma::gemma_keys(Keys& k) {
  rms_norm_key(k);
  k.hf_expects({"attention_bias"}, {false});
  k.hf_expects({"use_bidirectional_attention"}, {false});
  k.hf_tied = true;
}

void Gemma::score_scale_key(Keys& k, int64_t odd_layers) {
  k.number(score_scale, "attention_scale")
      .in_gguf("attention.scale")
      .in_hf("query_pre_attn_scalar")
      .converted_from_hf([](double scalar) { return Given(1 / std::sqrt(scalar)); })
      .positive()
      .hf_otherwise(1 / std::sqrt(256.0))
      .otherwise([=, this] {
        return 1 / std::sqrt(double(n_layers == odd_layers ? dim / heads : head_dim));
      });
}

void Gemma::tensors(Slots& s) {
  layers.resize(size_t(n_layers));
  token_slot(s);
  const auto norm = [&](Linear& member, const char* name, const char* hf) {
    s.add(member, name, 1, dim).in_hf(hf).less_one_in_hf();
  };
  for (int64_t i = 0; i < n_layers; ++i) {
    Layer& l = layers[size_t(i)];
    s.layer(i, "layers.");
    norm(l.attn_norm, "attn_norm", "input_layernorm");
    attention_slots(s, l.attn, Bias::none, halves());
    if (head_norms)
      for (Slots::Slot* slot : head_norm_slots(s, l.attn, halves())) slot->less_one_in_hf();
    if (outer_norms) norm(l.attn_outer_norm, "post_attention_norm", "post_attention_layernorm");
    norm(l.ffn_norm, "ffn_norm",
         outer_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    gated_slots(s, l.ffn);
    if (outer_norms) norm(l.ffn_outer_norm, "post_ffw_norm", "post_feedforward_layernorm");
  }
  end_slots(s).less_one_in_hf();
}

void Gemma::build(Graph& g) const {
  const auto normed = [&](ValueId x, const Linear& w) {
    return outer_norms ? rms_norm(g, x, w) : x;
  };
  ValueId x = g.scale(g.get_rows(*token_embd.weight), std::sqrt(float(dim)));
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& l = layers[i];
    const ValueId mixed = attention(g, rms_norm(g, x, l.attn_norm), l.attn, int(i));
    x = g.add(x, normed(mixed, l.attn_outer_norm));
    const ValueId made = gated(g, rms_norm(g, x, l.ffn_norm), l.ffn, Activation::gelu);
    x = g.add(x, normed(made, l.ffn_outer_norm));
  }
  logits(g, rms_norm(g, g.take_outputs(x), output_norm));
}

namespace {

class Gemma1 : public Gemma {
 public:
  Gemma1() { outer_norms = false; }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    gemma_keys(k);
    // The first files say "gelu" and mean the tanh approximation.
    k.hf_expects({"hidden_activation", "hidden_act"}, {"gelu_pytorch_tanh", "gelu"});
  }
};

}  // namespace

extern const Architecture kGemma;
const Architecture kGemma{"gemma", {"GemmaForCausalLM"}, make_model<Gemma1>};

}  // namespace chaski
