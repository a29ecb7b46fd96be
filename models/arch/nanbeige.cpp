// Nanbeige 4.2: Llama whose layers are run several times, one loop after the other. Each loop has
// keys and values of its own, and begins with the norm that otherwise precedes the head.
#include "models/blocks/llama.h"

namespace chaski {

namespace {

class Nanbeige : public Llama {
  int64_t loops = 1;
  bool no_norm_between = false;

  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k.integer(loops, "num_loops").in_hf("num_loops").range(1, 64).otherwise(int64_t{1});
    k.flag(no_norm_between, "skip_loop_final_norm").in_hf("skip_loop_final_norm").otherwise(false);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_tensors("attention_bias", attention_biases());
    k.hf_tensors("mlp_bias", gated_biases());
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (int64_t loop = 0; loop < loops; ++loop) {
      if (loop > 0 && !no_norm_between) x = rms_norm(g, x, output_norm);
      for (size_t i = 0; i < layers.size(); ++i) {
        const Layer& l = layers[i];
        x = g.add(x, attention(g, rms_norm(g, x, l.attn_norm), l.attn, int(i)));
        x = g.add(x, feed(g, rms_norm(g, x, l.ffn_norm), i));
      }
    }
    logits(g, rms_norm(g, g.take_outputs(x), output_norm));
  }
};

}  // namespace

extern const Architecture kNanbeige;
const Architecture kNanbeige{"nanbeige", {"NanbeigeForCausalLM"}, make_model<Nanbeige>};

}  // namespace chaski
