// Hunyuan, dense (0.5B to 7B): Llama with norms of each head's queries and keys after the rotation.
// config.json has its theta as a base and a factor (alpha). q and k are half-split in GGUF files
// too.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class HunyuanDense : public Llama {
 public:
  HunyuanDense() { half_split_in_gguf = true; }

 private:
  struct HeadNorms {
    Linear q, k;
  };
  std::vector<HeadNorms> turned_norms;
  double alpha = 1;

  void keys(Keys& k) override {
    size_keys(k);
    k.number(alpha, "rope_alpha")
        .not_in_gguf()
        .in_hf({"rope_parameters.alpha", "rope_scaling.alpha"})
        .otherwise(1.0)
        .positive();
    rope_keys(k);
    const auto stretched = [this](double theta) {
      return Given(theta * std::pow(alpha, double(head_dim) / (head_dim - 2)));
    };
    k["rope_theta"].converted_from_hf(stretched).hf_otherwise([=] { return stretched(10000); });
    // Hunyuan's "dynamic" is this constant factor; it does not depend on the length of the text.
    // Without a method transformers ignores alpha.
    k["rope_scaling"].hf_word("dynamic", "none").hf_otherwise([this](const std::string& file) {
      if (alpha != 1)
        fail(Exit::bad_file, "{}: rope_scaling.type is missing, expected dynamic for alpha {}",
             file, alpha);
      return std::optional<Given>("none");
    });
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
  }

  void tensors(Slots& s) override {
    Llama::tensors(s);
    turned_norms.resize(size_t(n_layers));
    for (int64_t i = 0; i < n_layers; ++i) {
      s.layer(i, "layers.");
      const auto norm = [&](Linear& member, const char* name, const char* hf) {
        s.add(member, name, 1, head_dim).in_hf(hf, halves()).in_gguf(halves());
      };
      norm(turned_norms[size_t(i)].q, "attn_q_norm", "self_attn.query_layernorm");
      norm(turned_norms[size_t(i)].k, "attn_k_norm", "self_attn.key_layernorm");
    }
    s.after_layers();
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId n = rms_norm(g, x, l.attn_norm);
      const auto turned = [&](const Linear& part, const Linear& norm, int of) {
        const ValueId y = g.rope(linear(g, n, part), of, head_dim, rope);
        return g.rms_norm(y, *norm.weight, eps, of);
      };
      const ValueId q = turned(l.attn.q, turned_norms[i].q, heads),
                    k = turned(l.attn.k, turned_norms[i].k, kv_heads);
      const StateId kv = g.state(Paged{kv_heads, head_dim, head_dim, 0});
      g.kv_write(kv, k, linear(g, n, l.attn.v));
      x = g.add(x, linear(g, g.attention(q, kv, 1 / std::sqrt(float(head_dim))), l.attn.output));
      x = g.add(x, gated(g, rms_norm(g, x, l.ffn_norm), l.ffn));
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kHunyuanDense;
const Architecture kHunyuanDense{
    "hunyuan-dense", {"HunYuanDenseV1ForCausalLM"}, make_model<HunyuanDense>};

}  // namespace chaski
