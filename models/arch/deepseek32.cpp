// DeepSeek V3.2: the layers of V3 with sparse attention.
#include "models/blocks/sparse_mla.h"

namespace chaski {

namespace {

class DeepSeek32 : public SparseMla {
 public:
  DeepSeek32() {
    choice_bias = Bias::maybe, names.shared = "mlp.shared_experts";
    index_half_split = true;
  }

  void keys(Keys& k) override { sparse_keys(k); }
};

}  // namespace

extern const Architecture kDeepSeek32;
const Architecture kDeepSeek32{"deepseek32", {"DeepseekV32ForCausalLM"}, make_model<DeepSeek32>};

}  // namespace chaski
