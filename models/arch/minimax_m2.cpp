// MiniMax M2: norms over all of q and all of k, rotary positions on a part of each head, and
// experts in all layers, chosen by a sigmoid with a bias.
#include "models/blocks/minimax.h"

namespace chaski {

namespace {

class MiniMaxM2 : public MiniMax {
 public:
  MiniMaxM2() {
    whole_norms = true;
    choice_bias = Bias::always;
    names.bias = "block_sparse_moe.e_score_correction_bias";
  }

  void keys(Keys& k) override {
    size_keys(k);
    k["head_dim"].hf_otherwise(int64_t{128});
    rotary_keys(k, true);
    k["rope_theta"].hf_otherwise(5e6);
    rms_norm_key(k);
    expert_keys(k, {"num_local_experts", "num_experts"});
    expert_width_key(k);
    k["expert_feed_forward_length"].in_hf("intermediate_size");
    k.integer(gating, "expert_gating_func")
        .not_in_hf()
        .range(kSoftMax, kSigmoid)
        .otherwise(int64_t{kSigmoid});
    k.hf_expects({"hidden_act"}, {"silu"});
  }
};

}  // namespace

extern const Architecture kMiniMaxM2;
const Architecture kMiniMaxM2{"minimax-m2", {"MiniMaxM2ForCausalLM"}, make_model<MiniMaxM2>};

}  // namespace chaski
