// BitNet b1.58 (2B4T): Llama with norms in front of the last matrix of attention and feed-forward,
// and a gate of squares of relu. Matrices are -1, 0 and 1 times one number; what they multiply is
// rounded to 8 bits, token by token, so that their sums are exact integers. Ma et al. 2025, "BitNet
// b1.58 2B4T Technical Report".
#include "models/decoder.h"

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

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].otherwise(500000.0);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"relu2"});
    k.hf_expects({"attention_bias"}, {false});
    k.hf_expects({"quantization_config.quant_method"}, {"bitnet"});
    k.hf_expects({"quantization_config.linear_class"}, {"autobitlinear"});
    k.hf_expects({"quantization_config.quantization_mode"}, {"offline"});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "model.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("embed_tokens").as(Role::token_table);
    const auto ternary = [&](Ternary& member, const std::string& name, int64_t rows, int64_t cols,
                             const std::string& hf, RowOrder order = {}) {
      s.add(member.matrix, name, rows, cols).in_hf(hf, order);
      s.add(member.scale, name + "_scale", 1, 1).in_hf(hf + ".weight_scale").bare_in_hf();
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
    s.behind_layers();
    s.add(output_norm, "output_norm", 1, dim).in_hf("norm");
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
  }

  static ValueId times(Graph& g, const Graph::Rounded& x, const Ternary& w) {
    const float scale = *reinterpret_cast<const float*>(w.scale.weight->data);
    return g.scale(g.blend({linear(g, x.whole, w.matrix)}, x.unit), scale);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const Graph::Rounded n = g.round_rows(rms_norm(g, x, l.attn_norm));
      const ValueId mixed =
          attention_of(g, times(g, n, l.q), times(g, n, l.k), times(g, n, l.v), int(i));
      x = g.add(x, times(g, g.round_rows(rms_norm(g, mixed, l.attn_sub_norm)), l.output));
      const Graph::Rounded m = g.round_rows(rms_norm(g, x, l.ffn_norm));
      const ValueId gate = g.activate(Activation::relu2, times(g, m, l.gate)),
                    made = rms_norm(g, g.mul(gate, times(g, m, l.up)), l.ffn_sub_norm);
      x = g.add(x, times(g, g.round_rows(made), l.down));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kBitNet;
const Architecture kBitNet{"bitnet", {"BitNetForCausalLM"}, make_model<BitNet>};

}  // namespace chaski
