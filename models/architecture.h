// Model architectures, one file each (models/arch). An architecture lists its hyperparameters and
// tensors (facts.h) and writes the graph of a pass. It knows no backend, block format, fusion or KV
// layout.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ggml-like-tensor/graph.h"
#include "models/facts.h"

namespace chaski {

class Model {
 public:
  virtual ~Model() = default;
  // The hyperparameters, in the order in which they are read.
  virtual void keys(Keys& keys) = 0;
  // Called after the keys are read. Checks that they fit together; throws Error(bad_file) naming
  // `file`.
  virtual void agree(const std::string& file) const { (void)file; }
  // The tensors in file order. Called after the keys are read; before that, the list has only the
  // tensors outside the layers.
  virtual void tensors(Slots& slots) = 0;
  // Called once, after all tensors are bound. Throws Error(bad_file).
  virtual void bound(const std::string& file) { (void)file; }
  // Stretches rotary positions to `factor` times the context and replaces the file's own scaling.
  // Returns false if the model has no rotary positions. Must be called before expect_sessions().
  virtual bool stretch_rope(RopeScaling kind, double factor) {
    return (void)kind, (void)factor, false;
  }
  // Sets the maximum length of a session. Called at most once, before the first graph; the default
  // is the model's context.
  virtual void expect_sessions(int64_t context) { (void)context; }
  // Writes the graph of graph.network; a model that has only a decoder ignores that. A decoder
  // computes the logits of batch.outputs, (outputs, vocab), and their hidden rows. Only sizes are
  // read from the batch.
  virtual void build(Graph& graph) const = 0;

  // Facts that the engine reads from every model.
  int64_t vocab = 0, context = 0, n_layers = 0;
  // Width of the extra input row of each token (models/heads/eagle.h); 0: tokens have no such row.
  int64_t row_columns = 0;
  // Which hidden rows become the embedding of a whole text.
  enum class Pooling { last, mean } pooling = Pooling::last;

  struct BoundWeight {
    Role role;
    const Weight* weight;
    int64_t experts = 1, chosen = 1;  // TensorSlot
  };
  std::vector<BoundWeight> weights;  // of all bound slots
};

struct Architecture {
  // general.architecture in .quipu and GGUF files. If several have one name, the first reads these
  // files, and the others only Hugging Face folders.
  const char* name;
  std::vector<std::string> hf;  // "architectures" in Hugging Face's config.json
  std::unique_ptr<Model> (*make)();
  // "model_type" of the text part in config.json, for a model that reads more than text.
  std::vector<std::string> hf_text = {};
};
template <class M>
std::unique_ptr<Model> make_model() {
  return std::make_unique<M>();
}

std::vector<Architecture>& architectures();                    // tests add their own
const Architecture* find_architecture(std::string_view name);  // null: unknown
std::vector<std::string> architecture_names();

// A model with its hyperparameters but without tensors. Throws Error(bad_file) for an unknown
// architecture and for a key that is missing, out of range or in conflict with another.
std::unique_ptr<Model> model_of(const Metadata& meta);

// The same for importers: defaults are written into `meta`. Before a key is read, `look_up` is
// called for it: it copies the key into `meta` if the foreign file has it, and returns the key's
// name in the foreign file.
using LookUp = std::function<std::string(const Key&)>;
std::unique_ptr<Model> complete_model(Metadata& meta, const LookUp& look_up);
// For one of several architectures with the same name.
std::unique_ptr<Model> complete_model(const Architecture& architecture, Metadata& meta,
                                      const LookUp& look_up);
// For metadata that an importer wrote under our own names.
void complete_model(Metadata& meta);

std::vector<TensorSlot> tensors_of(Model& model);
// Throws Error(bad_file) if the model has many more layers than the file has tensors. It is called
// before tensors_of(), which would list thousands of layers for a small file.
void expect_layers(const Model& model, size_t tensors, const std::string& file);

// Throws the errors that bind_model() would throw for these tensors, before any weight is read.
void expect_model(const ModelSource& source);
// Makes the model of weights.meta and binds its tensors. Throws Error(bad_file), also for a
// missing, unexpected or wrongly shaped tensor, naming the tensor.
std::unique_ptr<Model> bind_model(const Weights& weights);
// The same for a model that is not in the list of architectures, whose keys were read. `kind` is
// for messages.
void expect_tensors(Model& model, const ModelSource& source);
void bind_tensors(Model& model, const std::string& kind, const Weights& weights);

}  // namespace chaski
