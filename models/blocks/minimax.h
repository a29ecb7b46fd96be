// What MiniMax's models have in common: Mixtral's names, and rotary positions on a part of each
// head.
#pragma once
#include "models/blocks/experts.h"

namespace chaski {

class MiniMax : public Experts {
 protected:
  MiniMax() {
    half_split_in_gguf = true, qkv_bias = Bias::none;
    names = mixtral_names();
  }

  // part: transformers reads a part of a head. The published config.json has rotary_dim instead.
  void rotary_keys(Keys& k, bool part) {
    k.integer(rotary_dim, "rotary_dim")
        .not_in_gguf()
        .in_hf("rotary_dim")
        .range(2, 1 << 20)
        .optional();
    part ? partial_rope_keys(k, 1.0) : rope_keys(k);
    k["rope_dim"].hf_otherwise([this] { return rotary_dim > 0 ? rotary_dim : int64_t{head_dim}; });
  }

 private:
  int64_t rotary_dim = 0;
};

}  // namespace chaski
