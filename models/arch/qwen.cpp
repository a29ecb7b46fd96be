// Qwen 1 (not 1.5): Llama under other names, with q, k and v in one tensor, with biases. Files
// store twice the width of the feed-forward. The context is the length that the model was trained
// for: beyond it the authors' code stretches positions and scales queries by the length of the
// text.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Qwen : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    k["context_length"].in_hf("seq_length");
    k["head_count_kv"].not_in_hf();
    k["head_dim"].in_hf("kv_channels");
    rope_keys(k);
    k["rope_theta"].in_hf("rotary_emb_base");
    rms_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_epsilon");
    k.hf_expects({"rotary_pct"}, {1.0});
    k.hf_expects({"no_bias"}, {true});
    k.hf_expects({"scale_attn_weights"}, {true});
  }

  void agree(const std::string& file) const override {
    Llama::agree(file);
    if (ffn % 2)
      fail(Exit::bad_file, "{}: model.feed_forward_length is {}, expected an even number", file,
           ffn);
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.hf_unread = {"rotary_emb.inv_freq", ".attn.masked_bias", ".attn.bias"};
    s.add(token_embd, "token_embd", vocab, dim).in_hf("wte").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "h.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("ln_1");
      fused_slots(s, l.attn, "attn.c_attn", 1, Bias::always, true);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("attn.c_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("ln_2");
      s.add(l.ffn.gate, "ffn_gate", ffn / 2, dim).in_hf("mlp.w2");
      s.add(l.ffn.up, "ffn_up", ffn / 2, dim).in_hf("mlp.w1");
      s.add(l.ffn.down, "ffn_down", dim, ffn / 2).in_hf("mlp.c_proj");
    }
    s.after_layers();
    rope_freqs_slot(s);
    s.add(output_norm, "output_norm", 1, dim).in_hf("ln_f");
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head);
  }
};

}  // namespace

extern const Architecture kQwen;
const Architecture kQwen{"qwen", {"QWenLMHeadModel"}, make_model<Qwen>};

}  // namespace chaski
