// The text part of Qwen 2 VL and 2.5 VL: Qwen 2 with sections of rotary positions. q and k are
// half-split (NeoX's rotary order) in GGUF files too.
#include "models/blocks/image_positions.h"
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Qwen2Vl : public Llama {
 public:
  Qwen2Vl() { qkv_bias = Bias::always, half_split_in_gguf = true; }

 private:
  std::vector<int64_t> sections;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    k["rope_theta"].hf_otherwise(1e6);
    k["rope_scaling"].hf_word("mrope", "none");
    section_key(k, sections, "mrope_section", "mrope_section")
        .hf_otherwise(std::vector<int64_t>{16, 24, 24, 0});
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_sliding_window"}, {false});
    k.hf_expects_each("layer_types", "full_attention");
  }

  void agree(const std::string& file) const override {
    Llama::agree(file);
    expect_sections(file, sections, rope.dim / 2);
  }

  void tensors(Slots& s) override {
    s.hf_other_parts = {"visual.", "model.visual."};
    Llama::tensors(s);
  }
};

}  // namespace

extern const Architecture kQwen2Vl;
const Architecture kQwen2Vl{
    "qwen2vl",
    {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"},
    make_model<Qwen2Vl>,
    {"qwen2_vl_text", "qwen2_5_vl_text"}};

}  // namespace chaski
