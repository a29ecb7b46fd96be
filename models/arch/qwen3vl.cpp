// The text part of Qwen 3 VL, dense: Qwen 3 with interleaved sections of rotary positions. q and k
// are half-split in GGUF files too.
#include "models/blocks/image_positions.h"
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Qwen3Vl : public Llama {
 public:
  Qwen3Vl() { head_norms = half_split_in_gguf = true; }

 private:
  std::vector<int64_t> sections;

  void keys(Keys& k) override {
    size_keys(k);
    k["head_dim"].hf_otherwise(int64_t{128});
    rope_keys(k);
    k["rope_theta"].hf_otherwise(500000.0);
    section_key(k, sections, "mrope_section", "mrope_section")
        .hf_otherwise(std::vector<int64_t>{24, 20, 20, 0});
    rms_norm_key(k);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_tensors("attention_bias", attention_biases());
  }

  void tensors(Slots& s) override {
    s.hf_other_parts = {"model.visual."};
    Llama::tensors(s);
  }
};

}  // namespace

extern const Architecture kQwen3Vl;
const Architecture kQwen3Vl{
    "qwen3vl", {"Qwen3VLForConditionalGeneration"}, make_model<Qwen3Vl>, {"qwen3_vl_text"}};

}  // namespace chaski
