// Heads that guess ahead of a model by the model's rows (EAGLE, Li et al. 2024 and 2025; layers for
// the prediction of several tokens, DeepSeek 2024). A row and the row of the table of the token
// behind it become a guess at the next row, which a head reads: what will be drawn there. They are
// models of their own, whose tokens come with a row each.
#pragma once
#include <array>

#include "models/blocks/decoder.h"

namespace chaski {

class EagleHead : public Decoder {
 public:
  void keys(Keys& keys) override;
  void agree(const std::string& file) const override;
  // What has the same Hugging Face name lies side by side there, in this order.
  void tensors(Slots& slots) override = 0;
  void bound(const std::string& file) override;

  // Of the model that it guesses for.
  int64_t columns() const { return columns_; }
  const std::string& target_path() const { return path_; }

  // Which token each of its logits is of; empty: they are of all tokens.
  std::vector<int32_t> tokens;

 protected:
  // For a model that outlives it and has rows of so many columns; `path` is told in errors.
  EagleHead(const Decoder& target, int64_t columns, std::string path);
  const Decoder& target_;
  const Weight* table_ = nullptr;

 private:
  const int64_t columns_;
  const std::string path_;
};

// Reads what the model's logits are made of, behind its last norm. Row and token are made one, and
// go through layers of Llama's kind, of which the first has no norm in front of its attention. The
// model's own head reads what comes out.
class Eagle1 : public EagleHead {
 public:
  Eagle1(const Decoder& target, int64_t columns, std::string path)
      : EagleHead(target, columns, std::move(path)) {}
  void tensors(Slots& slots) override;
  void build(Graph& graph) const override;

 private:
  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  Linear of_token_, of_row_;
  std::vector<Layer> layers_;
};

// Reads what a low, a middle and a high layer of the model read, made one. One layer, whose
// attention sees token and row side by side, each behind a norm of its own; then a norm and a head
// of its own, which may know some of the tokens only.
class Eagle3 : public EagleHead {
 public:
  Eagle3(const Decoder& target, int64_t columns, std::string path)
      : EagleHead(target, columns, std::move(path)) {}
  void keys(Keys& keys) override;
  void agree(const std::string& file) const override;
  void tensors(Slots& slots) override;
  void bound(const std::string& file) override;
  void build(Graph& graph) const override;

  std::vector<int64_t> layers_read;  // whose inputs become a row, by these matrices
  std::array<Linear, 3> rows_of;
  int64_t draft_vocab = 0;

 private:
  static constexpr int64_t kLayersRead = 3, kLeastLayers = 7;
  Linear token_norm_, row_norm_, ffn_norm_;
  struct Halves {  // of a matrix over both
    Linear token, row;
  };
  Halves q_, k_, v_;
  Linear attn_output_, head_;
  GatedWeights ffn_;
};

// Reads what the model's logits are made of, and was trained with it: the layer that predicts the
// next token but one, by the names of MiMo. Row and token are normed before they are made one, and
// what goes through a layer of Qwen2's kind is normed before the model's own head reads it. Its
// config.json is the model's.
class NextLayer : public EagleHead {
 public:
  NextLayer(const Decoder& target, int64_t columns, std::string path)
      : EagleHead(target, columns, std::move(path)) {}
  void keys(Keys& keys) override;
  void agree(const std::string& file) const override;
  void tensors(Slots& slots) override;
  void build(Graph& graph) const override;

 private:
  Linear token_norm_, row_norm_, of_row_, of_token_, attn_norm_, ffn_norm_;
  AttentionWeights attn_;
  GatedWeights ffn_;
};

}  // namespace chaski
