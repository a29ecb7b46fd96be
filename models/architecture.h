// Model architectures: one file each, one line in the list of architecture.cpp. An architecture
// writes graphs and names tensors; it knows no backend, block format, fusion or KV layout.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ggml-like-tensor/graph.h"

namespace chaski {

// The numbers of metadata.h, read and checked once.
struct Hyper {
  int64_t vocab = 0, context = 0, dim = 0, layers = 0, ffn = 0;
  int heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float eps = 1e-5f;
  RopeSpec rope;
};
Hyper hyper_of(const Weights& weights);  // throws Error(bad_file)

class Model {
 public:
  virtual ~Model() = default;
  // Logits of batch.outputs, (outputs, vocab). Only sizes are read from the batch.
  virtual void build(Graph& graph) const = 0;
  // Called once, when all tensors are bound. Throws Error(bad_file).
  virtual void bound(const std::string& file) { (void)file; }
  Hyper hyper;
};

// A tensor an architecture wants, as the loader binds it, the quantizer and random models walk it.
struct TensorSlot {
  std::string name;
  int64_t rows = 1, cols = 0;
  const Weight** weight = nullptr;
  bool optional = false;
};

struct Architecture {
  const char* name;
  std::unique_ptr<Model> (*make)(const Hyper&);
  // Every tensor of the model, in file order; fills the model's pointers when bound.
  std::vector<TensorSlot> (*tensors)(Model&);
};

std::vector<Architecture>& architectures();  // tests add theirs

// Makes the model of weights.meta's general.architecture and binds its tensors. Throws
// Error(bad_file): an unknown architecture, a missing, unexpected or wrongly shaped tensor, each by
// name.
std::unique_ptr<Model> bind_model(const Weights& weights);
// The tensors a model with these hyperparameters has: `architecture` by name.
std::vector<TensorInfo> tensors_of(const std::string& architecture, const Hyper& hyper);

}  // namespace chaski
