// BitNet b1.58: Llama with a norm before the last matrix of attention and of feed-forward and,
// since 2B4T, a gate of relu squared. Matrix values are -1, 0 or 1 times one number. Their inputs
// are rounded to 8 bits token by token, so that sums are exact integers. Source: Ma et al. 2025,
// "BitNet b1.58 2B4T Technical Report".
#include <optional>

#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class BitNet : public Decoder {
  struct Ternary {
    Linear matrix, scale;
  };
  struct Layer {
    Linear attn_norm, attn_sub_norm, ffn_norm, ffn_sub_norm;
    Ternary q, k, v, output, gate, up, down;
  };
  std::vector<Layer> layers;
  int unused = 0;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].otherwise(500000.0);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.word(activation, "hidden_activation",
           {{"relu2", Activation::relu2}, {"silu", Activation::silu}})
        .in_gguf("hidden_act")
        .in_hf("hidden_act")
        .otherwise(std::string("relu2"))
        .gguf_otherwise(std::string("silu"));
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"quantization_config.quant_method"}, {"bitnet"});
    // Without them transformers rounds no inputs, or to other numbers.
    const auto require = [&](const char* name, std::vector<std::pair<std::string, int>> words) {
      k.word(unused, name, std::move(words))
          .not_in_gguf()
          .in_hf(std::string("quantization_config.") + name)
          .required_in_hf()
          .optional();
    };
    require("linear_class", {{"autobitlinear", 0}});
    require("quantization_mode", {{"offline", 0}, {"online", 0}});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "model.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("embed_tokens").as(Role::token_table);
    const auto ternary = [&](Ternary& member, const std::string& name, int64_t rows, int64_t cols,
                             const std::string& hf, RowOrder order = {}) {
      s.add(member.matrix, name, rows, cols).in_hf(hf, order).in_gguf(order).ternary_in_hf();
      s.add(member.scale, name + "_scale", 1, 1)
          .in_hf(hf + ".weight_scale")
          .in_gguf(name + ".scale", {})
          .bare_in_hf()
          .optional();
    };
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      ternary(l.q, "attn_q", q_rows(), dim, "self_attn.q_proj", halves());
      ternary(l.k, "attn_k", kv_rows(), dim, "self_attn.k_proj", halves());
      ternary(l.v, "attn_v", kv_rows(), dim, "self_attn.v_proj");
      s.add(l.attn_sub_norm, "attn_sub_norm", 1, q_rows()).in_hf("self_attn.attn_sub_norm");
      ternary(l.output, "attn_output", dim, q_rows(), "self_attn.o_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      ternary(l.gate, "ffn_gate", ffn, dim, "mlp.gate_proj");
      ternary(l.up, "ffn_up", ffn, dim, "mlp.up_proj");
      s.add(l.ffn_sub_norm, "ffn_sub_norm", 1, ffn).in_hf("mlp.ffn_sub_norm");
      ternary(l.down, "ffn_down", dim, ffn, "mlp.down_proj");
    }
    s.after_layers();
    s.add(output_norm, "output_norm", 1, dim).in_hf("norm");
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
  }

  // The input of a matrix: rounded token by token, or unchanged if the matrix has a format that
  // rounds its input itself, in blocks (TQ2_0).
  struct Input {
    ValueId plain;
    std::optional<Graph::Rounded> rounded;
  };
  static ValueId times(Graph& g, Input& x, const Ternary& w) {
    ValueId y;
    if (reads_acts(w.matrix.weight->info.format)) {
      y = linear(g, x.plain, w.matrix);
    } else {
      if (!x.rounded) x.rounded = g.round_rows(x.plain);
      y = g.blend({linear(g, x.rounded->whole, w.matrix)}, x.rounded->unit);
    }
    if (!w.scale.weight) return y;
    return g.scale(y, *reinterpret_cast<const float*>(w.scale.weight->data));
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      Input n{rms_norm(g, x, l.attn_norm), {}};
      const ValueId q = times(g, n, l.q), k = times(g, n, l.k), v = times(g, n, l.v);
      Input mixed{rms_norm(g, attention_of(g, q, k, v, int(i)), l.attn_sub_norm), {}};
      x = g.add(x, times(g, mixed, l.output));
      Input m{rms_norm(g, x, l.ffn_norm), {}};
      const ValueId gate = g.activate(activation, times(g, m, l.gate));
      Input made{rms_norm(g, g.mul(gate, times(g, m, l.up)), l.ffn_sub_norm), {}};
      x = g.add(x, times(g, made, l.down));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kBitNet;
const Architecture kBitNet{"bitnet", {"BitNetForCausalLM"}, make_model<BitNet>};

}  // namespace chaski
