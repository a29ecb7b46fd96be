// CodeShell: GPT-2 with rotary positions and grouped-query attention.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class CodeShell : public Gpt {
  void keys(Keys& k) override {
    size_keys(k);
    gpt_size_names(k);
    k["head_count_kv"].in_hf("num_query_groups");
    k["feed_forward_length"].in_hf("n_inner").hf_otherwise([this] { return 4 * dim; });
    rope_keys(k);
    layer_norm_key(k);
    activation_key(k, "activation_function", "gelu_tanh");
    k.hf_expects({"group_query_attention"}, {true});
    k.hf_expects({"position_embedding_type"}, {"rope"});
    k.hf_expects({"scale_attn_weights"}, {true});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    s.hf_prefix = "transformer.";
    s.hf_unread = {".rotary_emb.inv_freq"};
    embedding_slots(s, "wte");
    layer_slots(s, {"h.", "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"},
                1, Bias::always);
    s.after_layers();
    rope_freqs_slot(s);
    norm_slot(s, output_norm, "output_norm", "ln_f", Bias::always);
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).optional().always_in_gguf();
  }
};

}  // namespace

extern const Architecture kCodeShell;
const Architecture kCodeShell{"codeshell", {"CodeShellForCausalLM"}, make_model<CodeShell>};

}  // namespace chaski
