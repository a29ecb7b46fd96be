// What many decoders have in common, said once: usual keys, usual tensors, usual pieces of a graph.
// An architecture takes what fits in a line and says itself what is its own.
#pragma once
#include <array>

#include "models/architecture.h"

namespace chaski {

class Decoder : public Model {
 public:
  void agree(const std::string& file) const override;
  void bound(const std::string& file) override;
  bool stretch_rope(RopeScaling kind, double factor) override;
  void expect_sessions(int64_t context) override { rope.context = context; }
  // `x` is normed: the results, it and the logits, by the head or the token table.
  void logits(Graph& g, ValueId x) const;

 protected:
  int64_t dim = 0, ffn = 0;
  int heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  std::vector<int64_t> windowed;  // layer by layer: 1 if it has the window; empty: all have
  float eps = 0;
  float max_bias = 0;  // of scores (ops/attention.h); 0: there is none
  float clip = 0;      // what q, k and v are kept below; 0: they are not
  Activation activation = Activation::gelu;
  RopeSpec rope;                         // dim 0: there is none
  float score_scale = 0, score_cap = 0;  // of attention; 0: 1 / sqrt(head_dim), and no cap
  // What token rows, all that is added to the residual stream, and logits are multiplied with; what
  // logits are divided by, and the bound they are pressed under (0: none).
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1, logit_divisor = 1, logit_cap = 0;
  Linear token_embd, output_norm, output, rope_freqs;

  // Widths and numbers of everything, under the names that Llama's config.json has for them.
  void size_keys(Keys& keys);
  void rope_keys(Keys& keys);  // of whole heads, as far as config.json is asked
  // Of a part of each head: of `usual_part`, where config.json does not say.
  void partial_rope_keys(Keys& keys, double usual_part);
  void window_key(Keys& keys);
  // Where every `period`-th layer sees all there is, and the others have the window.
  void window_pattern_key(Keys& keys, int64_t period);
  void rms_norm_key(Keys& keys);    // eps, without a default in GGUF
  void layer_norm_key(Keys& keys);  // the same under its other name
  void alibi_key(Keys& keys);       // max_bias
  void clip_key(Keys& keys);
  // Of plain(). GGUF files do not say it: `usual` is what the architecture's models have.
  void activation_key(Keys& keys, const char* hf, const char* usual);
  // The order of q and k in files that turn channel i of a head together with i + rope.dim / 2.
  RowOrder halves() const { return half_split(head_dim, rope.dim); }

  struct AttentionWeights {
    Linear q, k, v, output;
    Linear q_norm, k_norm;  // where there are such: RMS norms of each head, in front of rope
  };
  struct GatedWeights {
    Linear gate, up, down;
  };
  struct PlainWeights {
    Linear up, down;
  };
  // attn_q, attn_k, attn_v, attn_output under Llama's Hugging Face names, where q and k are
  // half-split; `gguf`: their order in GGUF files. Returns the slot of attn_output.
  Slots::Slot& attention_slots(Slots& slots, AttentionWeights& w, Bias qkv, RowOrder gguf) {
    return attention_slots(slots, w, qkv, gguf, halves());
  }
  Slots::Slot& attention_slots(Slots& slots, AttentionWeights& w, Bias qkv, RowOrder gguf,
                               RowOrder hf);
  // The first three out of one tensor of a Hugging Face file, with rows of q, k and v in turn,
  // `turns` times over, q and k half-split in each. `one_in_gguf`: in GGUF files they are one, too,
  // attn_qkv, with all of q, k and v one after the other; otherwise three, in our order.
  void fused_slots(Slots& slots, AttentionWeights& w, const char* hf, int64_t turns, Bias bias,
                   bool one_in_gguf);
  // attn_q_norm, attn_k_norm, in the order of q and k.
  std::array<Slots::Slot*, 2> head_norm_slots(Slots& slots, AttentionWeights& w, RowOrder gguf);
  void gated_slots(Slots& slots, GatedWeights& w);    // ffn_gate, ffn_up, ffn_down
  void gate_up_slots(Slots& slots, GatedWeights& w);  // the same with gate and up in one tensor
  // token_embd, and "model." in front of every name of a Hugging Face file.
  void token_slot(Slots& slots);
  // Behind the layers: rope_freqs, output_norm, and a head, which may be the token table. Returns
  // the norm's slot.
  Slots::Slot& end_slots(Slots& slots, const char* norm = "norm", Bias bias = Bias::none,
                         const char* head = "lm_head");
  // Divisors of the frequencies, which a GGUF file may hold; llama3's leave a folder as these.
  void rope_freqs_slot(Slots& slots);

  // What may be another thing in another layer: whether q and k are turned, and how.
  virtual bool turns(int layer) const { return (void)layer, true; }
  virtual RopeSpec rope_of(int layer) const { return (void)layer, rope; }
  bool has_window(int layer) const { return windowed.empty() || windowed[size_t(layer)]; }

  int64_t q_rows() const { return int64_t(heads) * head_dim; }
  int64_t kv_rows() const { return int64_t(kv_heads) * head_dim; }

  ValueId rms_norm(Graph& g, ValueId x, const Linear& w) const {
    return g.rms_norm(x, *w.weight, eps);
  }
  // One without weight or bias is normed with ones or zeros.
  ValueId layer_norm(Graph& g, ValueId x, const Linear& w) const {
    return g.layer_norm(x, w.weight ? *w.weight : ones_, w.bias ? *w.bias : zeros_, eps);
  }
  static ValueId linear(Graph& g, ValueId x, const Linear& w) {
    if (w.order) x = g.reorder(x, *w.order);
    if (!w.outliers) return g.matmul(x, *w.weight, w.bias);
    const auto [rest, taken] = g.set_aside(x, *w.outliers);
    const ValueId y = g.matmul(rest, *w.weight, w.bias);
    return g.add(y, g.matmul(taken, *w.outlier_weight));
  }
  ValueId embedding(Graph& g) const;                       // rows of the token table, scaled
  ValueId residual(Graph& g, ValueId x, ValueId y) const;  // x + y, with y scaled
  // Of values that are normed already: what is added to the residual stream.
  ValueId attention(Graph& g, ValueId n, const AttentionWeights& w, int layer) const;
  // Its middle: turns q and k, keeps k and v, and weighs the values; before attn_output.
  ValueId attention_of(Graph& g, ValueId q, ValueId k, ValueId v, int layer) const;
  static ValueId gated(Graph& g, ValueId n, const GatedWeights& w,
                       Activation by = Activation::silu);
  ValueId plain(Graph& g, ValueId n, const PlainWeights& w) const;  // by `activation`
 private:
  void scaling_keys(Keys& keys);

  std::vector<float> one_and_zero_;  // `dim` of each
  Weight ones_, zeros_;              // over them
};

}  // namespace chaski
