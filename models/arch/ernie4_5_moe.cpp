// ERNIE 4.5 with experts (21B-A3B, 300B-A47B): ERNIE 4.5, whose layers after the first choose
// experts by a soft-max with a bias, and have a shared expert. q and k are interleaved in all
// files.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class Ernie45Moe : public Experts {
 public:
  Ernie45Moe() {
    half_split_in_hf = false;
    choice_bias = Bias::always, names.shared = "mlp.shared_experts";
    names.bias = "mlp.moe_statics.e_score_correction_bias";
  }

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].hf_otherwise(5e5);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    expert_keys(k, {"moe_num_experts", "num_experts"});
    k["expert_used_count"].in_hf({"moe_k", "num_experts_per_tok"});
    k.hf_expects({"num_experts_per_tok"}, {chosen});
    expert_width_key(k);
    k.integer(shared_ffn, "expert_shared_feed_forward_length")
        .in_hf("moe_num_shared_experts")
        .converted_from_hf_integer(
            [this](int64_t n) { return Given(n > 1 << 22 || n < 0 ? n : n * expert_ffn); })
        .range(0, 1 << 22);
    k.integer(dense_layers, "leading_dense_block_count")
        .in_hf("moe_layer_start_index")
        .range(0, 4096)
        .hf_otherwise(int64_t{1});
    k.integer(interval, "interleave_moe_layer_step")
        .in_hf("moe_layer_interval")
        .range(1, 1)
        .otherwise(int64_t{1});
    k.hf_expects({"moe_layer_end_index"}, {int64_t{-1}, n_layers - 1});
    k.hf_expects({"moe_norm_min"}, {1e-12});
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_bias"}, {false});
    k.hf_tied = true;
  }

 private:
  int64_t interval =
      1;  // which of the layers after the first have experts; llama.cpp needs the key
};

}  // namespace

extern const Architecture kErnie45Moe;
const Architecture kErnie45Moe{"ernie4_5-moe", {"Ernie4_5_MoeForCausalLM"}, make_model<Ernie45Moe>};

}  // namespace chaski
