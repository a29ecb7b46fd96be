// Baichuan 1 and 2: Llama with q, k and v in one tensor of a Hugging Face file. The 13B models have
// no rotary positions but ALiBi. Baichuan 2 normalizes the rows of its head to length 1; in GGUF
// files this is done already.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Baichuan : public Llama {
  double z_loss = -1;  // z_loss of the training config; only Baichuan 2 has it

  void keys(Keys& k) override {
    size_keys(k);
    k["context_length"].in_hf(
        {"max_sequence_length", "max_position_embeddings", "model_max_length"});
    k["head_count_kv"].not_in_hf();
    rope_keys(k);
    rms_norm_key(k);
    // Files do not say whether ALiBi is used, so the number of layers decides.
    alibi_key(k);
    k["max_alibi_bias"].when([this] { return n_layers == 40; });
    k.hf_expects({"hidden_act"}, {"silu"});
    k.number(z_loss, "z_loss_weight").not_in_gguf().in_hf("z_loss_weight").optional();
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
    s.after_layers();
    rope_freqs_slot(s);
    s.add(output_norm, "output_norm", 1, dim).in_hf("norm");
    auto& head = s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional();
    if (z_loss >= 0) head.unit_rows_in_hf();
  }

  bool turns(int) const override { return max_bias == 0; }
};

}  // namespace

extern const Architecture kBaichuan;
const Architecture kBaichuan{
    "baichuan", {"BaichuanForCausalLM", "BaiChuanForCausalLM"}, make_model<Baichuan>};

}  // namespace chaski
