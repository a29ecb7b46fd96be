// Llama's layers, with or without experts, with RMS norms of each head's queries and keys after the
// rotation, not before it.
#pragma once
#include "models/blocks/experts.h"

namespace chaski {

class LateNorms : public Experts {
 protected:
  void attend_slots(Slots& slots, int64_t i) override;
  ValueId attend(Graph& g, ValueId n, size_t i) const override;

  const char *q_norm_name = "self_attn.q_norm", *k_norm_name = "self_attn.k_norm";

  // Hunyuan's theta is a base, times a power of `alpha`. `words`: its names in config.json for a
  // scaling that is this constant factor.
  double alpha = 1;
  void alpha_key(Keys& keys);  // before rope_keys
  void alpha_rope_words(Keys& keys, const std::vector<std::string>& words);
  double stretched(double theta) const {
    return theta * std::pow(alpha, double(head_dim) / (head_dim - 2));
  }

 private:
  struct HeadNorms {
    Linear q, k;
  };
  std::vector<HeadNorms> turned_norms_;
};

}  // namespace chaski
