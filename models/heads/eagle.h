// Draft heads that read hidden rows of their target model: EAGLE (Li et al. 2024 and 2025), and
// layers for multi-token prediction (DeepSeek 2024). From a hidden row of the target and the
// embedding of the token that follows it, they compute the next hidden row; an output head turns it
// into logits of the token after next. Each is a model of its own, whose inputs are tokens with a
// row each.
#pragma once
#include <array>

#include "models/blocks/decoder.h"

namespace chaski {

class EagleHead : public Decoder {
 public:
  void keys(Keys& keys) override;
  void agree(const std::string& file) const override;
  // Slots with the same Hugging Face name are column ranges of one tensor there, in this order.
  void tensors(Slots& slots) override = 0;
  void bound(const std::string& file) override;

  // Of the target model.
  int64_t columns() const { return columns_; }
  const std::string& target_path() const { return path_; }

  // The token ids of the logits; empty: the logits are those of all tokens in order.
  std::vector<int32_t> tokens;

 protected:
  // `target` outlives the head; its hidden rows have `columns` columns. Errors name `path`, the
  // path of the target.
  EagleHead(const Decoder& target, int64_t columns, std::string path);
  const Decoder& target_;
  const Weight* table_ = nullptr;

 private:
  const int64_t columns_;
  const std::string path_;
};

// EAGLE-1 and EAGLE-2 read the hidden row after the last norm of the target. A matrix joins row and
// embedding; then come Llama layers, the first without a norm before its attention. The output head
// of the target makes the logits.
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

// EAGLE-3 reads the inputs of a low, a middle and a high layer of the target, joined by a matrix.
// It has one layer, whose attention reads embedding and row concatenated, each after its own norm.
// Then come a norm and an output head of its own, which may have only a part of the tokens.
class Eagle3 : public EagleHead {
 public:
  Eagle3(const Decoder& target, int64_t columns, std::string path)
      : EagleHead(target, columns, std::move(path)) {}
  void keys(Keys& keys) override;
  void agree(const std::string& file) const override;
  void tensors(Slots& slots) override;
  void bound(const std::string& file) override;
  void build(Graph& graph) const override;

  std::vector<int64_t> layers_read;  // the layers whose inputs are read; rows_of joins them
  std::array<Linear, 3> rows_of;
  int64_t draft_vocab = 0;

 private:
  static constexpr int64_t kLayersRead = 3, kLeastLayers = 7;
  Linear token_norm_, row_norm_, ffn_norm_;
  struct Halves {  // the two column ranges of a matrix
    Linear token, row;
  };
  Halves q_, k_, v_;
  Linear attn_output_, head_;
  GatedWeights ffn_;
};

// A layer for multi-token prediction, trained with the target, with the tensor names of MiMo. It
// reads the hidden row that the logits are made from. Row and embedding are normalized, then joined
// by a matrix. A Qwen2 layer and a norm follow; the output head of the target makes the logits. Its
// config.json is that of the target.
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
