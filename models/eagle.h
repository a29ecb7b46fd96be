// A head that guesses ahead of a model by the model's hidden rows (EAGLE, Li et al. 2024). The row
// behind which a token was drawn and the token's own row of the table are made one, go through
// layers of Llama's kind, of which the first has no norm in front of its attention, and come out as
// a guess at the next such row: the model's own head says what will be drawn behind that.
#pragma once
#include "models/decoder.h"

namespace chaski {

class Eagle : public Decoder {
 public:
  // For a model that outlives it and has rows of so many columns; `path` is told in errors.
  Eagle(const Decoder& target, int64_t columns, std::string path);

  void keys(Keys& keys) override;
  void agree(const std::string& file) const override;
  // What has the same Hugging Face name lies side by side there, in this order.
  void tensors(Slots& slots) override;
  void bound(const std::string& file) override;
  void build(Graph& graph) const override;

  // Of the model that it guesses for.
  int64_t columns() const { return columns_; }
  const std::string& target_path() const { return path_; }

 private:
  struct Layer {
    Linear attn_norm, ffn_norm;
    AttentionWeights attn;
    GatedWeights ffn;
  };
  const Decoder& target_;
  const int64_t columns_;
  const std::string path_;
  const Weight* table_ = nullptr;
  Linear of_token_, of_row_;
  std::vector<Layer> layers_;
};

}  // namespace chaski
