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

void LateNorms::attend_slots(Slots& s, int64_t i) {
  Llama::attend_slots(s, i);
  turned_norms_.resize(layers.size());
  const auto norm = [&](Linear& member, const char* name, const char* hf) {
    s.add(member, name, 1, head_dim)
        .in_hf(hf, half_split_in_hf ? halves() : RowOrder{})
        .in_gguf(half_split_in_gguf ? halves() : RowOrder{});
  };
  norm(turned_norms_[size_t(i)].q, "attn_q_norm", q_norm_name);
  norm(turned_norms_[size_t(i)].k, "attn_k_norm", k_norm_name);
}

ValueId LateNorms::attend(Graph& g, ValueId n, size_t i) const {
  const Layer& l = layers[i];
  const auto turned = [&](const Linear& part, const Linear& norm, int of) {
    const ValueId y = g.rope(linear(g, n, part), of, head_dim, rope_of(int(i)));
    return g.rms_norm(y, *norm.weight, eps, of);
  };
  const ValueId q = turned(l.attn.q, turned_norms_[i].q, heads),
                k = turned(l.attn.k, turned_norms_[i].k, kv_heads);
  const StateId kv = g.state(Paged{kv_heads, head_dim, head_dim, 0});
  g.kv_write(kv, k, linear(g, n, l.attn.v));
  return linear(g, g.attention(q, kv, 1 / std::sqrt(float(head_dim))), l.attn.output);
}

}  // namespace chaski
