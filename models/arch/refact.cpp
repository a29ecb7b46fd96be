// Refact 1.6B: Llama's norms and gated feed-forward with ALiBi positions and one key head for all
// query heads. In Hugging Face files k and v are in one tensor, and gate and up in another.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Refact : public Llama {
  void keys(Keys& k) override {
    size_keys(k);
    gpt_size_names(k);
    k["head_count_kv"].not_in_hf().otherwise(int64_t{1});
    // Two thirds of four times the width, rounded up.
    k["feed_forward_length"].not_in_hf().otherwise([this] {
      constexpr int64_t kMultiple = 256;
      return (8 * dim / 3 + kMultiple - 1) / kMultiple * kMultiple;
    });
    rms_norm_key(k);
    k["norm_epsilon"].in_hf("layer_norm_epsilon").hf_otherwise(1e-5);
    alibi_key(k);
    k.hf_expects({"multi_query"}, {true});
    k.hf_expects({"n_inner"}, {});
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.add(token_embd, "token_embd", vocab, dim).in_hf("wte").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "h.");
      s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("ln_1");
      s.add(l.attn.q, "attn_q", q_rows(), dim).in_hf("attn.q");
      s.add(l.attn.k, "attn_k", kv_rows(), dim).in_hf("attn.kv", part(0, 2 * kv_rows()));
      s.add(l.attn.v, "attn_v", kv_rows(), dim).in_hf("attn.kv", part(kv_rows(), 2 * kv_rows()));
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("attn.c_proj");
      s.add(l.ffn_norm, "ffn_norm", 1, dim).in_hf("ln_2");
      s.add(l.ffn.gate, "ffn_gate", ffn, dim).in_hf("mlp.gate_up_proj", part(0, 2 * ffn));
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.gate_up_proj", part(ffn, 2 * ffn));
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.c_proj");
    }
    end_slots(s, "ln_f");
  }
};

}  // namespace

extern const Architecture kRefact;
const Architecture kRefact{"refact", {"GPTRefactForCausalLM"}, make_model<Refact>};

}  // namespace chaski
