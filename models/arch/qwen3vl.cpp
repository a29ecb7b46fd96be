// The text part of Qwen 3 VL, dense and with experts (30B-A3B, 235B-A22B): Qwen 3 with interleaved
// sections of rotary positions. q and k are half-split (NeoX's rotary order) in GGUF files too.
#include "models/blocks/experts.h"
#include "models/blocks/image_positions.h"

namespace chaski {

namespace {

class Qwen3Vl : public Experts {
 public:
  Qwen3Vl() { head_norms = half_split_in_gguf = true; }

 protected:
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

  void agree(const std::string& file) const override {
    Experts::agree(file);
    expect_sections(file, sections, rope.dim / 2);
  }

  void tensors(Slots& s) override {
    s.hf_other_parts = {"model.visual."};
    Llama::tensors(s);
  }
};

// Experts in all layers, whose weights add up to 1. A Hugging Face file has the matrices of all
// experts of a layer in two tensors, each matrix (in, out).
class Qwen3VlMoe : public Qwen3Vl {
 public:
  Qwen3VlMoe() {
    names.gate = names.up = "mlp.experts.gate_up_proj", names.down = "mlp.experts.down_proj";
    gate_up_in_one = gate_up_transposed = down_transposed = bare_in_hf = true;
  }

 private:
  void keys(Keys& k) override {
    Qwen3Vl::keys(k);
    k["head_dim"].hf_default = nullptr;  // heads * head_dim is the model's width
    expert_keys(k, {"num_experts", "num_local_experts"});
    expert_width_key(k);
    expect_experts_in_all_layers(k);
  }
};

}  // namespace

extern const Architecture kQwen3Vl, kQwen3VlMoe;
const Architecture kQwen3Vl{
    "qwen3vl", {"Qwen3VLForConditionalGeneration"}, make_model<Qwen3Vl>, {"qwen3_vl_text"}};
const Architecture kQwen3VlMoe{"qwen3vlmoe",
                               {"Qwen3VLMoeForConditionalGeneration"},
                               make_model<Qwen3VlMoe>,
                               {"qwen3_vl_moe_text"}};

}  // namespace chaski
