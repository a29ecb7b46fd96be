// Apertus: Llama with norms of each head's queries and keys, and an ungated feed-forward. Its
// activation, xIELU, has four numbers in each layer. q and k are half-split (NeoX's rotary order)
// in GGUF files too.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class Apertus : public Decoder {
  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    PlainWeights ffn;
  };
  std::vector<Layer> layers;
  // As files store them: alphas are softplus of these, and the negative one is beta more.
  std::vector<float> alpha_p, alpha_n, beta, eps_of;

  std::array<std::pair<std::vector<float>*, const char*>, 4> numbers() {
    return {{{&alpha_p, "alpha_p"}, {&alpha_n, "alpha_n"}, {&beta, "beta"}, {&eps_of, "eps"}}};
  }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    // Without rope_parameters transformers assumes those of one model.
    k["rope_scaling"].required_in_hf();
    k["rope_theta"].hf_otherwise(12e6);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    // Hugging Face folders store them as tensors.
    for (auto [list, name] : numbers())
      k.numbers(*list, std::string("xielu_") + name, [this] { return n_layers; })
          .in_gguf(std::string("/xielu.") + name)
          .not_in_hf()
          .optional();
    k.hf_expects({"hidden_act"}, {"xielu"});
    k.hf_tensors("attention_bias", attention_biases());
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    for (auto [list, name] : numbers())
      s.hf_numbers.push_back(
          {std::string("layers.*.mlp.act_fn.") + name, std::string("model.xielu_") + name});
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("attention_layernorm");
      attention_slots(s, l.attn, Bias::maybe, halves()).with(Bias::maybe);
      head_norm_slots(s, l.attn, halves());
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("feedforward_layernorm");
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.up_proj");
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.down_proj");
    }
    end_slots(s);
  }

  void bound(const std::string& file) override {
    Decoder::bound(file);
    for (auto [list, name] : numbers())
      if (list->empty())
        fail(Exit::bad_file, "{}: model.xielu_{} is missing, expected a number for each layer",
             file, name);
  }

  Xielu activation_of(size_t i) const {
    const auto soft_plus = [](float x) { return std::log1p(std::exp(double{x})); };
    return {float(soft_plus(alpha_p[i])), float(double{beta[i]} + soft_plus(alpha_n[i])), beta[i],
            eps_of[i]};
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      x = g.add(x, attention(g, rms_norm(g, x, l.attn_norm), l.attn, int(i)));
      const ValueId up = linear(g, rms_norm(g, x, l.ffn_norm), l.ffn.up);
      x = g.add(x, linear(g, g.xielu(up, activation_of(i)), l.ffn.down));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kApertus;
const Architecture kApertus{"apertus", {"ApertusForCausalLM"}, make_model<Apertus>};

}  // namespace chaski
