// GPT-J: attention and gelu feed-forward parallel after one layer norm, rotary positions on a part
// of each head (neighbouring channels rotate together), a bias on the logits. CodeGen is the same
// with q, v and k in one tensor.
#include "models/blocks/decoder.h"

namespace chaski {

namespace {

class GptJ : public Decoder {
  struct Layer {
    Linear norm;
    AttentionWeights attn;
    PlainWeights ffn;
  };
  std::vector<Layer> layers;

 protected:
  virtual void qkv_slots(Slots& s, AttentionWeights& w) {
    s.add(w.q, "attn_q", q_rows(), dim).in_hf("attn.q_proj");
    s.add(w.k, "attn_k", kv_rows(), dim).in_hf("attn.k_proj");
    s.add(w.v, "attn_v", kv_rows(), dim).in_hf("attn.v_proj");
  }

 private:
  void keys(Keys& k) override {
    size_keys(k);
    gpt_size_names(k);
    k["head_count_kv"].not_in_hf();
    k["feed_forward_length"].in_hf("n_inner").hf_otherwise([this] { return 4 * dim; });
    rope_keys(k);
    k["rope_dim"].in_hf("rotary_dim");
    // transformers has no other theta and no scaling for it.
    k["rope_theta"].not_in_hf(), k["rope_scaling"].not_in_hf();
    k.hf_expects({"rope_scaling"}, {}), k.hf_expects({"rope_parameters"}, {});
    layer_norm_key(k);
    activation_key(k, "activation_function", "gelu_tanh");
  }

  void tensors(Slots& s) override {
    layers.resize(size_t(n_layers));
    s.hf_prefix = "transformer.";
    s.hf_unread = {".attn.bias", ".attn.masked_bias", ".attn.causal_mask"};
    s.add(token_embd, "token_embd", vocab, dim).in_hf("wte").as(Role::token_table);
    for (int64_t i = 0; i < n_layers; ++i) {
      Layer& l = layers[size_t(i)];
      s.layer(i, "h.");
      s.add(l.norm, "attn_norm", 1, dim).in_hf("ln_1").with(Bias::always);
      qkv_slots(s, l.attn);
      s.add(l.attn.output, "attn_output", dim, q_rows()).in_hf("attn.out_proj");
      s.add(l.ffn.up, "ffn_up", ffn, dim).in_hf("mlp.fc_in").with(Bias::always);
      s.add(l.ffn.down, "ffn_down", dim, ffn).in_hf("mlp.fc_out").with(Bias::always);
    }
    s.after_layers();
    rope_freqs_slot(s);
    s.add(output_norm, "output_norm", 1, dim).in_hf("ln_f").with(Bias::always);
    s.add(output, "output", vocab, dim).in_hf("lm_head").as(Role::head).with(Bias::always);
  }

  void build(Graph& g) const override {
    ValueId x = g.get_rows(*token_embd.weight);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const ValueId n = layer_norm(g, x, l.norm);
      x = g.add(x, attention(g, n, l.attn, int(i)));
      x = g.add(x, plain(g, n, l.ffn));
    }
    logits(g, layer_norm(g, g.take_outputs(x), output_norm));
  }
};

// The tensor has four parts, each with a quarter of q, v and k: the training split it over four
// accelerators.
class CodeGen : public GptJ {
  void agree(const std::string& file) const override {
    Decoder::agree(file);
    if (heads % 4)
      fail(Exit::bad_file, "{}: model.head_count is {}, expected a multiple of 4", file, heads);
  }

  void qkv_slots(Slots& s, AttentionWeights& w) override {
    const auto add = [&](Linear& member, const char* name, int64_t before) {
      const RowOrder order = part(before * q_rows() / 4, 3 * q_rows());
      s.add(member, name, q_rows(), dim).in_hf("attn.qkv_proj", order.taking_turns(4, q_rows()));
    };
    add(w.q, "attn_q", 0);
    add(w.v, "attn_v", 1);
    add(w.k, "attn_k", 2);
  }
};

}  // namespace

extern const Architecture kGptJ, kCodeGen;
const Architecture kGptJ{"gptj", {"GPTJForCausalLM"}, make_model<GptJ>};
const Architecture kCodeGen{"codegen", {"CodeGenForCausalLM"}, make_model<CodeGen>};

}  // namespace chaski
