// What many decoders share: common keys, tensors and pieces of a graph. An architecture picks the
// parts that fit, one line each, and writes only what is its own.
#pragma once
#include <array>

#include "models/architecture.h"

namespace chaski {

class Decoder : public Model {
 public:
  void agree(const std::string& file) const override;
  void bound(const std::string& file) override;
  bool stretch_rope(RopeScaling kind, double factor) override;
  void expect_sessions(int64_t context) override;
  // `x` is normed. Sets the results: x itself, and its logits by the head or the token table.
  void logits(Graph& g, ValueId x) const;

 protected:
  int64_t dim = 0, ffn = 0;
  int64_t further_layers = 0;
  bool has_further_layers = false;  // a file may have some
  int heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  bool chunked = false;           // windows are blocks of cells (state.h)
  std::vector<int64_t> windowed;  // 1 for each layer with a window, else 0; empty: all have it
  float eps = 0;
  float max_bias = 0;  // ALiBi bias of the scores (ops/attention.h); 0: none
  float clip = 0;      // q, k and v are clipped to -clip..clip; 0: not clipped
  Activation activation = Activation::gelu;
  RopeSpec rope;                         // dim 0: no rotary positions
  float score_scale = 0, score_cap = 0;  // of attention; 0: 1 / sqrt(head_dim), and no cap
  // Factors of token rows, of everything added to the residual stream, and of logits; the divisor
  // of logits and their soft cap (0: none).
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1, logit_divisor = 1, logit_cap = 0;
  Linear token_embd, output_norm, output, rope_freqs;
  Bias head_bias = Bias::none;

  // All widths and counts, under the names of Llama's config.json.
  void size_keys(Keys& keys);
  // Layers after the model's own that predict further tokens. GGUF files count them as blocks.
  void further_layers_key(Keys& keys);
  // config.json may have this key under each of the names. They must agree.
  static void key_names(Keys& keys, const char* key, const std::vector<std::string>& in_hf,
                        int64_t value);
  // GPT-2's names of the sizes, and the usual ones.
  void gpt_size_names(Keys& keys);
  void rope_keys(Keys& keys);  // config.json must say that whole heads rotate, or nothing
  // A part of each head rotates; `usual_part` if config.json does not say how much.
  void partial_rope_keys(Keys& keys, double usual_part);
  void window_key(Keys& keys);
  // The places of partial_rotary_factor and rope_theta, where older files have these names.
  static void older_rope_names(Keys& keys, const char* part, const char* theta);
  // The scaling methods that transformers has for the architecture, by its names.
  static void expect_scaling(Keys& keys, std::vector<Given> methods);
  // Every `period`-th layer attends to all positions, the others to the window.
  void window_pattern_key(Keys& keys, int64_t period);
  std::vector<int64_t> all_but_every(int64_t period) const;  // 1 where a layer has the window
  void rms_norm_key(Keys& keys);                             // eps, without a default in GGUF
  void layer_norm_key(Keys& keys);                           // the same under its layer norm name
  void alibi_key(Keys& keys);                                // max_bias
  void clip_key(Keys& keys);
  void factor_keys(Keys& keys);  // the four factors, under Granite's names
  // The activation of plain(). GGUF files do not store it, so `usual` is that of the architecture's
  // models.
  void activation_key(Keys& keys, const char* hf, const char* usual);
  // The order of q and k in files where channel i of a head rotates together with i + rope.dim / 2.
  RowOrder halves() const { return half_split(head_dim, rope.dim); }

  // The biases of Llama's names, for Keys::hf_tensors().
  static std::vector<std::string> qkv_biases() {
    return {".q_proj.bias", ".k_proj.bias", ".v_proj.bias"};
  }
  static std::vector<std::string> attention_biases() {
    return {".q_proj.bias", ".k_proj.bias", ".v_proj.bias", ".o_proj.bias"};
  }
  static std::vector<std::string> gated_biases() {
    return {".gate_proj.bias", ".up_proj.bias", ".down_proj.bias"};
  }

  struct AttentionWeights {
    Linear q, k, v, output;
    Linear q_norm, k_norm;  // optional RMS norms before rope: of each head, or of the whole row
    Linear sinks;           // optional: ops/attention.h
  };
  struct GatedWeights {
    Linear gate, up, down;
  };
  struct PlainWeights {
    Linear up, down;
  };
  // attn_q, attn_k, attn_v, attn_output under Llama's Hugging Face names, with q and k half-split.
  // `gguf`: their order in GGUF files. Returns the slot of attn_output.
  Slots::Slot& attention_slots(Slots& slots, AttentionWeights& w, Bias qkv, RowOrder gguf) {
    return attention_slots(slots, w, qkv, gguf, halves());
  }
  Slots::Slot& attention_slots(Slots& slots, AttentionWeights& w, Bias qkv, RowOrder gguf,
                               RowOrder hf);
  // q, k and v that are one tensor in a Hugging Face file. Its rows of q, k and v alternate `turns`
  // times; q and k are half-split. `one_in_gguf`: a GGUF file has one tensor attn_qkv too, with q,
  // k and v one after the other. Otherwise it has three in our order.
  void fused_slots(Slots& slots, AttentionWeights& w, const char* hf, int64_t turns, Bias bias,
                   bool one_in_gguf);
  // Slots of attn_q_norm and attn_k_norm, for each head or for the whole row. Their columns have
  // the order of the rows of q and k; `gguf`: that order in GGUF files.
  std::array<Slots::Slot*, 2> head_norm_slots(Slots& slots, AttentionWeights& w, RowOrder gguf,
                                              bool whole = false);
  // ffn_gate, ffn_up and ffn_down. hf: their names there.
  void gated_slots(Slots& slots, GatedWeights& w, const std::array<const char*, 3>& hf,
                   Bias bias = Bias::none);
  void gated_slots(Slots& slots, GatedWeights& w) {
    gated_slots(slots, w, {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}, Bias::maybe);
  }
  void gate_up_slots(Slots& slots, GatedWeights& w);  // the same with gate and up in one tensor
  // token_embd; sets "model." as the prefix of all Hugging Face names.
  void token_slot(Slots& slots, const char* in_hf = "embed_tokens");
  // The tensors after the layers: rope_freqs, output_norm, and a head, which may be the token
  // table. Returns the norm's slot.
  Slots::Slot& end_slots(Slots& slots, const char* norm = "norm", Bias bias = Bias::none,
                         const char* head = "lm_head");
  // Divisors of the rotary frequencies, which a GGUF file may have. An export of llama3's scaling
  // writes them.
  void rope_freqs_slot(Slots& slots);

  // What may differ by layer: whether q and k rotate, and how.
  virtual bool turns(int layer) const { return (void)layer, true; }
  virtual RopeSpec rope_of(int layer) const { return (void)layer, rope; }
  // One number for each query head (ops/attention.h), or null.
  virtual const Weight* sinks_of(int layer) const { return (void)layer, nullptr; }
  bool has_window(int layer) const { return windowed.empty() || windowed[size_t(layer)]; }

  int64_t q_rows() const { return int64_t(heads) * head_dim; }
  int64_t kv_rows() const { return int64_t(kv_heads) * head_dim; }

  ValueId rms_norm(Graph& g, ValueId x, const Linear& w) const {
    return g.rms_norm(x, *w.weight, eps);
  }
  ValueId rms_norm(Graph& g, ValueId x) const { return g.rms_norm(x, ones_, eps); }  // no weight
  // A norm without weight or bias uses ones or zeros.
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
  // `n` is normed. Returns what is added to the residual stream.
  ValueId attention(Graph& g, ValueId n, const AttentionWeights& w, int layer) const;
  // What the KV cache may subtract from the keys of a layer, and divide them by, or null.
  const Weight* key_centre(int layer) const;
  const Weight* key_scales(int layer) const;
  // The middle part of attention, before attn_output: rotates q and k, stores k and v, attends.
  ValueId attention_of(Graph& g, ValueId q, ValueId k, ValueId v, int layer) const;
  static ValueId gated(Graph& g, ValueId n, const GatedWeights& w,
                       Activation by = Activation::silu);
  ValueId plain(Graph& g, ValueId n, const PlainWeights& w) const;  // with `activation`
 private:
  void scaling_keys(Keys& keys);
  // Facts of a layer's keys and queries that the weights tell, each null if there is none.
  struct KeyFacts {
    const float *k_bias = nullptr, *q_bias = nullptr, *k_norm = nullptr, *q_norm = nullptr;
  };
  std::vector<KeyFacts> key_facts() const;
  void fit_keys();
  void centre_keys(int layer, const float* bias);
  void scale_keys(int layer, const KeyFacts& facts);
  // One row of kv_rows() numbers of a layer.
  struct KeyRow {
    std::vector<float> numbers;
    Weight weight;
    const Weight* get() const { return weight.data ? &weight : nullptr; }
    void set(const char* name, int layer);
  };

  static constexpr int64_t kCentredPositions = 4096;
  // By layer: the mean of the rotated bias of keys over these positions, and powers of two.
  std::vector<KeyRow> key_centres_, key_scales_;
  std::vector<float> one_and_zero_;  // `dim` ones, then `dim` zeros
  Weight ones_, zeros_;              // views of it
};

}  // namespace chaski
