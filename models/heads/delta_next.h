// The layer for one more token of Qwen 3 Next and Qwen 3.5 (`mtp.*` in Hugging Face files, `nextn`
// in GGUF). Embedding and row are normalized, then joined by a matrix. One more layer of the model
// follows, with attention and, if the model has them, experts. After a norm of its own, the output
// head of the target makes the logits. The normed row is the row for the next draft token.
#pragma once
#include "models/blocks/delta_net.h"
#include "models/heads/eagle.h"

namespace chaski {

class DeltaNext : public EagleHead {
 public:
  DeltaNext(const Decoder& target, int64_t columns, std::string path)
      : EagleHead(target, columns, std::move(path)) {}
  // Takes the sizes of the layer from the metadata of its file. Throws Error(bad_file) if they are
  // not those of a model with such a layer, or do not fit the target.
  void read(const Metadata& meta);
  void tensors(Slots& slots) override;
  void bound(const std::string& file) override;
  void expect_sessions(int64_t context) override;
  void build(Graph& graph) const override;

 private:
  std::unique_ptr<Model> model_;
  DeltaNet* layer_ = nullptr;  // model_
};

}  // namespace chaski
