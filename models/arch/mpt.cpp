// MPT: ALiBi positions, layer norms without biases, gelu feed-forward; q, k and v may be clipped.
#include "models/blocks/gpt.h"

namespace chaski {

namespace {

class Mpt : public Gpt {
 public:
  Mpt() { activation = Activation::gelu_erf; }

 private:
  void keys(Keys& k) override {
    size_keys(k);
    k["context_length"].in_hf("max_seq_len");
    key_names(k, "embedding_length", {"d_model", "hidden_size"}, dim);
    key_names(k, "block_count", {"n_layers", "num_hidden_layers"}, n_layers);
    key_names(k, "head_count", {"n_heads", "num_attention_heads"}, heads);
    k["head_count_kv"].not_in_hf();
    k["feed_forward_length"]
        .in_hf("expansion_ratio")
        .converted_from_hf([this](double ratio) { return Given(int64_t(ratio * double(dim))); })
        .hf_otherwise([this] { return 4 * dim; });
    layer_norm_key(k);
    alibi_key(k);
    k["max_alibi_bias"].in_hf("attn_config.alibi_bias_max");
    clip_key(k);
    k["clamp_kqv"].in_hf("attn_config.clip_qkv");
    k.hf_expects({"attn_config.alibi"}, {true});
    k.hf_expects({"attn_config.rope"}, {false});
    k.hf_expects({"attn_config.attn_type"}, {"multihead_attention"});
    k.hf_expects({"attn_config.prefix_lm"}, {false});
    k.hf_expects({"attn_config.qk_ln"}, {false});
    k.hf_expects({"attn_config.softmax_scale"}, {});
    k.hf_expects({"logit_scale"}, {});
    k.hf_expects({"no_bias"}, {true});
    k.hf_tied = true;
  }

  void tensors(Slots& s) override {
    s.hf_prefix = "transformer.";
    embedding_slots(s, "wte");
    layer_slots(s,
                {"blocks.", "norm_1", "attn.Wqkv", "attn.out_proj", "norm_2", "ffn.up_proj",
                 "ffn.down_proj"},
                1, Bias::none);
    end_slots(s, "norm_f", Bias::none);
  }
};

}  // namespace

extern const Architecture kMpt;
const Architecture kMpt{"mpt", {"MPTForCausalLM", "MptForCausalLM"}, make_model<Mpt>};

}  // namespace chaski
