// StarCoder 1 and SantaCoder (GPTBigCode): GPT-2 with one key head for all query heads.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class StarCoder : public Gpt {
  void keys(Keys& k) override {
    size_keys(k);
    gpt_size_names(k);
    k["head_count_kv"].hf_otherwise(int64_t{1});
    k["feed_forward_length"].in_hf("n_inner").hf_otherwise([this] { return 4 * dim; });
    layer_norm_key(k);
    activation_key(k, "activation_function", "gelu_tanh");
    k.hf_expects({"multi_query"}, {true});
    k.hf_expects({"scale_attn_weights"}, {true});
    k.hf_expects({"add_cross_attention"}, {false});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    s.hf_prefix = "transformer.";
    s.hf_unread = {".attn.bias", ".attn.masked_bias"};
    embedding_slots(s, "wte", "wpe");
    layer_slots(s, {"h.", "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"},
                1, Bias::always);
    end_slots(s, "ln_f", Bias::always);
  }
};

}  // namespace

extern const Architecture kStarCoder;
const Architecture kStarCoder{"starcoder", {"GPTBigCodeForCausalLM"}, make_model<StarCoder>};

}  // namespace chaski
