// Baichuan 1: Llama with q, k and v in one tensor of a Hugging Face file. 13B has no rotary
// positions; far keys lose instead (ALiBi). Baichuan 2 scales the rows of its head, which whoever
// wrote a GGUF file has done.
#include "models/llama.h"

namespace chaski {

namespace {

class Baichuan : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    k["context_length"].in_hf(
        {"max_sequence_length", "max_position_embeddings", "model_max_length"});
    k["head_count_kv"].not_in_hf();
    rope_keys(k);
    rms_norm_key(k);
    // Files do not say it, so that the number of layers has to.
    alibi_key(k);
    k["max_alibi_bias"].when([this] { return n_layers == 40; });
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"z_loss_weight"}, {});  // which Baichuan 2 has
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_unread = {".rotary_emb.inv_freq"};
    token_slot(s);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "layers.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm");
      fused_slots(s, l.attn, "self_attn.W_pack", 1, Bias::none, false);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("self_attn.o_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("post_attention_layernorm");
      gated_slots(s, l.ffn);
    }
    end_slots(s);
  }

  bool turns(int) const override { return max_bias == 0; }
};

}  // namespace

extern const Architecture kBaichuan;
const Architecture kBaichuan{
    "baichuan", {"BaichuanForCausalLM", "BaiChuanForCausalLM"}, make_model<Baichuan>};

}  // namespace chaski
