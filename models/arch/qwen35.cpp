// The text part of Qwen 3.5 and 3.6: the gated delta nets of Qwen 3 Next with a matrix for each of
// their inputs, dense or with experts. Rotary positions have interleaved sections.
#include "models/blocks/delta_net.h"
#include "models/blocks/image_positions.h"

namespace chaski {

namespace {

class Qwen35 : public DeltaNet {
 public:
  void keys(Keys& k) override {
    text_keys(k);
    k["feed_forward_length"].hf_otherwise(int64_t{12288});
  }

 protected:
  void text_keys(Keys& k) {
    size_keys(k);
    further_layers_key(k);
    k["head_dim"].hf_otherwise(int64_t{256});
    partial_rope_keys(k, 0.25);
    section_key(k, sections, "mrope_section", "mrope_section")
        .hf_otherwise(std::vector<int64_t>{11, 11, 10, 0})
        .optional();
    rms_norm_key(k);
    delta_keys(k);
    // GGUF files have the value heads in another order, if there are more of them than key heads.
    k.flag(tiled, "ssm.tiled_heads")
        .in_gguf_always(true)
        .not_in_hf()
        .otherwise([this] { return Given(v_heads == k_heads); })
        .gguf_otherwise(true);
  }

 private:
  std::vector<int64_t> sections;

  void delta_in_slots(Slots& s, Delta& d) const override {
    const auto in = [&](Linear& w, const char* name, int64_t first, int64_t rows) {
      s.add(w, name, rows, dim)
          .in_hf("linear_attn.in_proj_qkv", of_qkv(first))
          .in_gguf("attn_qkv", of_qkv(first));
    };
    in(d.q, "attn_qkv_q", 0, key_rows()), in(d.k, "attn_qkv_k", key_rows(), key_rows());
    in(d.v, "attn_qkv_v", 2 * key_rows(), inner);
    s.add(d.z, "attn_gate", inner, dim).in_hf("linear_attn.in_proj_z");
    s.add(d.b, "ssm_beta", v_heads, dim).in_hf("linear_attn.in_proj_b");
    s.add(d.a, "ssm_alpha", v_heads, dim).in_hf("linear_attn.in_proj_a");
  }
};

class Qwen35Moe : public Qwen35 {
 public:
  Qwen35Moe() {
    shared_is_gated = gate_up_in_one = bare_in_hf = may_be_one_by_one = true;
    names.gate = names.up = "mlp.experts.gate_up_proj", names.down = "mlp.experts.down_proj";
  }

  void keys(Keys& k) override {
    text_keys(k);
    std::erase_if(k.list, [](const Key& key) { return key.ours == "model.feed_forward_length"; });
    expert_keys(k);
    expert_width_key(k);
    shared_width_key(k);
  }
};

}  // namespace

extern const Architecture kQwen35, kQwen35Moe;
const Architecture kQwen35{"qwen35",
                           {"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"},
                           make_model<Qwen35>,
                           {"qwen3_5_text"}};
const Architecture kQwen35Moe{"qwen35moe",
                              {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"},
                              make_model<Qwen35Moe>,
                              {"qwen3_5_moe_text"}};

}  // namespace chaski
