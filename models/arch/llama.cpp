// Llama 1, 2, 3.x, Mistral and models built like them: RMS norm, rotary positions, grouped-query
// attention, gated silu feed-forward.
#include "models/blocks/experts.h"

namespace chaski {

// Each key has: the member, our name, GGUF's name if it differs, the place in config.json, the
// allowed values, the default. decoder.h has the keys that most models share.
void Llama::keys(Keys& k) {
  size_keys(k);
  rope_keys(k);
  rms_norm_key(k);
  window_key(k);
  k["sliding_window"].not_in_hf();  // Mistral's; transformers ignores it in a Llama
  k.hf_expects({"hidden_act"}, {"silu"});
  k.hf_tensors("attention_bias", attention_biases());
  k.hf_tensors("mlp_bias", gated_biases());
}

// Each tensor has: the member, our name (GGUF's differs only in spelling), rows, columns, its name
// in Hugging Face files, and the order of its rows where that is not ours.
void Llama::tensors(Slots& s) {
  layers.resize(size_t(n_layers));
  s.hf_unread = {".rotary_emb.inv_freq"};
  if (has_further_layers) s.further_layers = n_layers;
  token_slot(s, tokens_in_hf);
  for (int64_t i = 0; i < n_layers; ++i) {
    Layer& l = layers[size_t(i)];
    s.layer(i, "layers.");
    s.add(l.attn_norm, "attn_norm", 1, dim).in_hf("input_layernorm").with(norm_bias);
    attend_slots(s, i);
    s.add(l.ffn_norm, ffn_norm_name, 1, dim).in_hf("post_attention_layernorm").with(norm_bias);
    feed_slots(s, i);
  }
  end_slots(s, "norm", norm_bias);
}

void Llama::attend_slots(Slots& s, int64_t i) {
  AttentionWeights& w = layers[size_t(i)].attn;
  const RowOrder in_gguf = half_split_in_gguf ? halves() : RowOrder{};
  attention_slots(s, w, qkv_bias, in_gguf, half_split_in_hf ? halves() : RowOrder{})
      .with(Bias::maybe);
  if (head_norms || whole_norms) head_norm_slots(s, w, in_gguf, whole_norms);
  if (sinks) s.add(w.sinks, "attn_sinks", 1, heads).in_hf("self_attn.sinks").bare_in_hf();
}

void Llama::build(Graph& g) const {
  ValueId x = embedding(g);
  for (size_t i = 0; i < layers.size(); ++i) x = layer(g, x, i);
  logits(g, norm(g, g.take_outputs(x), output_norm));
}

namespace {

// A GGUF file of Mixtral is one of llama with experts. Its tensors in Hugging Face folders are here
// too, because importers list those of the first architecture of a name.
class LlamaOrMixtral : public Experts {
 public:
  LlamaOrMixtral() { names = mixtral_names(); }

  void keys(Keys& k) override {
    Llama::keys(k);
    expert_keys(k);
    for (const char* key : {"expert_count", "expert_used_count"}) k[key].not_in_hf().optional();
  }
};

class Mistral : public Llama {
  void keys(Keys& k) override {
    Llama::keys(k);
    k["sliding_window"].in_hf("sliding_window").hf_null_is(int64_t{0}).hf_otherwise(int64_t{4096});
    k.hf_expects({"layer_types"}, {});
  }
};

}  // namespace

// Other files call both llama.
extern const Architecture kLlama, kMistral;
const Architecture kLlama{
    "llama", {"LlamaForCausalLM", "LLaMAForCausalLM"}, make_model<LlamaOrMixtral>, {"llama"}};
const Architecture kMistral{"llama", {"MistralForCausalLM"}, make_model<Mistral>, {"mistral"}};

}  // namespace chaski
