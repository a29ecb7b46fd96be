// Hunyuan, dense (0.5B to 7B) and with experts (A13B): Llama with norms of each head's queries and
// keys after the rotation. config.json has its theta as a base and a factor (alpha). q and k are
// half-split (NeoX's rotary order) in GGUF files too.
#include "models/blocks/late_norms.h"

namespace chaski {

namespace {

class HunyuanDense : public LateNorms {
 public:
  HunyuanDense() {
    half_split_in_gguf = true;
    q_norm_name = "self_attn.query_layernorm", k_norm_name = "self_attn.key_layernorm";
  }

 protected:
  void keys(Keys& k) override {
    size_keys(k);
    alpha_key(k);
    rope_keys(k);
    const auto from_base = [this](double theta) { return Given(stretched(theta)); };
    k["rope_theta"].converted_from_hf(from_base).hf_otherwise([=] { return from_base(10000); });
    // Hunyuan's "dynamic" is this constant factor; it does not depend on the length of the text.
    alpha_rope_words(k, {"dynamic"});
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
  }
};

// Hunyuan A13B: experts in all layers, whose weights add up to 1, and a shared expert. Its files
// have lists with a number for each layer.
class HunyuanMoe : public HunyuanDense {
 public:
  HunyuanMoe() { names.router = "mlp.gate.wg", names.shared = "mlp.shared_mlp"; }

 private:
  void keys(Keys& k) override {
    HunyuanDense::keys(k);
    expert_keys(k, {"num_experts", "num_local_experts"});
    k["expert_used_count"].in_hf({"moe_topk", "num_experts_per_tok"}).by_layer_in_hf();
    k.hf_expects_each("num_experts_per_tok", chosen);
    expert_width_key(k);
    k["expert_feed_forward_length"].in_hf("intermediate_size");
    k.hf_expects_each("moe_intermediate_size", expert_ffn);
    k.integer(shared_ffn, "expert_shared_feed_forward_length")
        .in_hf("intermediate_size")
        .range(2, 1 << 22);
    k.hf_expects_each("num_shared_expert", int64_t{1});
  }
};

}  // namespace

extern const Architecture kHunyuanDense, kHunyuanMoe;
const Architecture kHunyuanDense{
    "hunyuan-dense", {"HunYuanDenseV1ForCausalLM"}, make_model<HunyuanDense>};
const Architecture kHunyuanMoe{"hunyuan-moe", {"HunYuanMoEV1ForCausalLM"}, make_model<HunyuanMoe>};

}  // namespace chaski
