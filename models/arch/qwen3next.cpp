// Qwen 3 Next: gated delta nets and gated attention, and experts in all layers with a gated shared
// one.
#include "models/blocks/delta_net.h"

namespace chaski {

namespace {

class Qwen3Next : public DeltaNet {
 public:
  Qwen3Next() { shared_is_gated = true, ffn_norm_name = "post_attention_norm"; }

  void keys(Keys& k) override {
    size_keys(k);
    further_layers_key(k);
    std::erase_if(k.list, [](const Key& key) { return key.ours == "model.feed_forward_length"; });
    k["head_dim"].hf_otherwise(int64_t{256});
    partial_rope_keys(k, 0.25);
    rms_norm_key(k);
    expert_keys(k);
    expert_width_key(k);
    shared_width_key(k);
    normalised_key(k, true, true);
    expect_experts_in_all_layers(k);
    delta_keys(k);
  }

 private:
  // Rows of a key head are together in Hugging Face files: its q, k, and the values and gates of
  // its value heads; and its b and a.
  void delta_in_slots(Slots& s, Delta& d) const override {
    const int64_t shared = inner / k_heads, pitch = 2 * k_dim + 2 * shared,
                  each = v_heads / k_heads;
    const auto rows = [&](int64_t first, int64_t n) {
      return part_of_heads(k_heads, pitch, first, n);
    };
    const char *in = "linear_attn.in_proj_qkvz", *qkv = "attn_qkv";
    s.add(d.q, "attn_qkv_q", key_rows(), dim).in_hf(in, rows(0, k_dim)).in_gguf(qkv, of_qkv(0));
    s.add(d.k, "attn_qkv_k", key_rows(), dim)
        .in_hf(in, rows(k_dim, k_dim))
        .in_gguf(qkv, of_qkv(key_rows()));
    s.add(d.v, "attn_qkv_v", inner, dim)
        .in_hf(in, rows(2 * k_dim, shared))
        .in_gguf(qkv, of_qkv(2 * key_rows()));
    s.add(d.z, "attn_gate", inner, dim).in_hf(in, rows(2 * k_dim + shared, shared));
    const auto of_heads = [&](Linear& w, const char* name, int64_t first) {
      const RowOrder order = part_of_heads(k_heads, 2 * each, first, each);
      s.add(w, name, v_heads, dim).in_hf("linear_attn.in_proj_ba", order).in_gguf("ssm_ba", order);
    };
    of_heads(d.b, "ssm_beta", 0), of_heads(d.a, "ssm_alpha", each);
  }
};

}  // namespace

extern const Architecture kQwen3Next;
const Architecture kQwen3Next{"qwen3next", {"Qwen3NextForCausalLM"}, make_model<Qwen3Next>};

}  // namespace chaski
