#include "models/blocks/late_norms.h"

#include <cmath>

namespace chaski {

void LateNorms::alpha_key(Keys& k) {
  k.number(alpha, "rope_alpha")
      .not_in_gguf()
      .in_hf({"rope_parameters.alpha", "rope_scaling.alpha"})
      .otherwise(1.0)
      .positive();
}

void LateNorms::alpha_rope_words(Keys& k, const std::vector<std::string>& words) {
  for (const std::string& word : words) k["rope_scaling"].hf_word(word, "none");
  // Without a method transformers ignores alpha.
  k["rope_scaling"].hf_otherwise([this](const std::string& file) {
    if (alpha != 1)
      fail(Exit::bad_file, "{}: rope_scaling.type is missing, expected dynamic for alpha {}", file,
           alpha);
    return std::optional<Given>("none");
  });
}

void LateNorms::tensors(Slots& s) {
  Llama::tensors(s);
  turned_norms_.resize(size_t(n_layers));
  for (int64_t i = 0; i < n_layers; ++i) {
    s.layer(i, "layers.");
    const auto norm = [&](Linear& member, const char* name, const char* hf) {
      s.add(member, name, 1, head_dim)
          .in_hf(hf, half_split_in_hf ? halves() : RowOrder{})
          .in_gguf(half_split_in_gguf ? halves() : RowOrder{});
    };
    norm(turned_norms_[size_t(i)].q, "attn_q_norm", q_norm_name);
    norm(turned_norms_[size_t(i)].k, "attn_k_norm", k_norm_name);
  }
  s.after_layers();
}

void LateNorms::build(Graph& g) const {
  ValueId x = g.get_rows(*token_embd.weight);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& l = layers[i];
    const ValueId n = rms_norm(g, x, l.attn_norm);
    const auto turned = [&](const Linear& part, const Linear& norm, int of) {
      const ValueId y = g.rope(linear(g, n, part), of, head_dim, rope_of(int(i)));
      return g.rms_norm(y, *norm.weight, eps, of);
    };
    const ValueId q = turned(l.attn.q, turned_norms_[i].q, heads),
                  k = turned(l.attn.k, turned_norms_[i].k, kv_heads);
    const StateId kv = g.state(Paged{kv_heads, head_dim, head_dim, 0});
    g.kv_write(kv, k, linear(g, n, l.attn.v));
    x = g.add(x, linear(g, g.attention(q, kv, 1 / std::sqrt(float(head_dim))), l.attn.output));
    x = g.add(x, feed(g, rms_norm(g, x, l.ffn_norm), i));
  }
  logits(g, rms_norm(g, g.take_outputs(x), output_norm));
}

}  // namespace chaski
