// Ling 2 and Ring 2 (in GGUF files: bailingmoe2): q, k and v in one tensor, norms of each head,
// rotary positions on half of each head. The first layers are dense; the others choose experts of
// some groups by a sigmoid with a bias, and have a shared expert.
#include "models/blocks/experts.h"

namespace chaski {

namespace {

class BailingMoe2 : public Experts {
 public:
  BailingMoe2() {
    tokens_in_hf = "word_embeddings";
    choice_bias = Bias::always, names.shared = "mlp.shared_experts";
    names.bias = "mlp.gate.expert_bias";
  }

  void keys(Keys& k) override {
    size_keys(k);
    further_layers_key(k);
    partial_rope_keys(k, 0.5);
    rms_norm_key(k);
    expert_keys(k);
    expert_width_key(k);
    router_keys(k, kSigmoid);
    k["expert_shared_count"].in_hf("num_shared_experts");
    k["expert_weights_norm"].hf_otherwise(true);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"score_function"}, {"sigmoid"});
    k.hf_expects({"moe_router_enable_expert_bias"}, {true});
    k.hf_expects({"use_qk_norm"}, {true});
    k.hf_expects({"use_bias"}, {false});
    k.hf_expects({"use_qkv_bias"}, {false});
  }

  void attend_slots(Slots& s, int64_t i) override {
    AttentionWeights& w = layers[size_t(i)].attn;
    fused_slots(s, w, "attention.query_key_value", 1, Bias::none, true);
    const auto norm = [&](Linear& member, const char* name, const char* hf) {
      s.add(member, name, 1, head_dim).in_hf(hf, halves()).in_gguf(halves());
    };
    norm(w.q_norm, "attn_q_norm", "attention.query_layernorm");
    norm(w.k_norm, "attn_k_norm", "attention.key_layernorm");
    s.add(w.output, "attn_output", dim, q_rows()).in_hf("attention.dense");
  }
};

}  // namespace

extern const Architecture kBailingMoe2;
const Architecture kBailingMoe2{
    "bailingmoe2", {"BailingMoeV2ForCausalLM"}, make_model<BailingMoe2>};

}  // namespace chaski
