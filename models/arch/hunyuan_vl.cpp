// The text part of HunyuanOCR (Hunyuan VL): Hunyuan, dense, under keys of its own. q and k are
// half-split (NeoX's rotary order) in GGUF files too.
#include "models/blocks/image_positions.h"
#include "models/blocks/late_norms.h"

namespace chaski {

namespace {

class HunyuanVl : public LateNorms {
 public:
  HunyuanVl() {
    half_split_in_gguf = true;
    q_norm_name = "self_attn.query_layernorm", k_norm_name = "self_attn.key_layernorm";
  }

 private:
  std::vector<int64_t> sections;

  void keys(Keys& k) override {
    size_keys(k);
    k["head_dim"].in_hf({"head_dim", "attention_head_dim"});
    k["vocab_size"].in_hf({"vocab_size", "org_vocab_size"});
    alpha_key(k);
    k["rope_alpha"].in_gguf("rope.scaling.alpha");
    rope_keys(k);
    alpha_rope_words(k, {"dynamic", "xdrope"});
    section_key(k, sections, "mrope_section", "xdrope_section");
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_qk_norm"}, {true});
    k.hf_expects({"use_cla"}, {false});
    k.hf_tensors("attention_bias", attention_biases());
    k.hf_tied = true;
  }

  void agree(const std::string& file) const override {
    LateNorms::agree(file);
    expect_sections(file, sections, rope.dim / 2);
  }

  void tensors(Slots& s) override {
    s.hf_other_parts = {"vit.", "model.vision_tower."};
    LateNorms::tensors(s);
  }

  RopeSpec rope_of(int) const override {
    RopeSpec spec = rope;
    spec.theta = stretched(spec.theta);
    return spec;
  }
};

}  // namespace

extern const Architecture kHunyuanVl;
const Architecture kHunyuanVl{"hunyuan_vl",
                              {"HunYuanVLForConditionalGeneration"},
                              make_model<HunyuanVl>,
                              {"hunyuan_vl_text"}};

}  // namespace chaski
