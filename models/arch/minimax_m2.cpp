// MiniMax M2: norms over all of q and all of k, rotary positions on a part of each head, and
// experts in all layers, chosen by a sigmoid with a bias.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class MiniMaxM2 : public Experts {
 public:
  MiniMaxM2() {
    whole_norms = half_split_in_gguf = true, qkv_bias = Bias::none;
    choice_bias = Bias::always;
    names = {"block_sparse_moe.gate", "block_sparse_moe.experts.*.w1",
             "block_sparse_moe.experts.*.w3", "block_sparse_moe.experts.*.w2"};
    names.bias = "block_sparse_moe.e_score_correction_bias";
  }

  void keys(Keys& k) override {
    size_keys(k);
    k["head_dim"].hf_otherwise(int64_t{128});
    // The published config.json has this instead of a part of a head.
    k.integer(rotary_dim, "rotary_dim")
        .not_in_gguf()
        .in_hf("rotary_dim")
        .range(2, 1 << 20)
        .optional();
    partial_rope_keys(k, 1.0);
    k["rope_dim"].hf_otherwise([this] { return rotary_dim > 0 ? rotary_dim : int64_t{head_dim}; });
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

 private:
  int64_t rotary_dim = 0;
};

}  // namespace

extern const Architecture kMiniMaxM2;
const Architecture kMiniMaxM2{"minimax-m2", {"MiniMaxM2ForCausalLM"}, make_model<MiniMaxM2>};

}  // namespace chaski
