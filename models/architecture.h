// Model architectures: one file each, one line in the list of architecture.cpp. An architecture
// lists its hyperparameters and its tensors (facts.h) and writes the graph of a pass; it knows no
// backend, block format, fusion or KV layout.
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
  // Its hyperparameters, in the order in which they are read.
  virtual void keys(Keys& keys) = 0;
  // Called when they are read: do they go together? Throws Error(bad_file) naming `file`.
  virtual void agree(const std::string& file) const { (void)file; }
  // Its tensors, in file order, after keys were read. Before that, those that are in no layer.
  virtual void tensors(Slots& slots) = 0;
  // Called once, when all tensors are bound. Throws Error(bad_file).
  virtual void bound(const std::string& file) { (void)file; }
  // Rotary positions for `factor` times the context, whatever the file says of their scaling.
  // False: there are none. To be called before expect_sessions().
  virtual bool stretch_rope(RopeScaling kind, double factor) {
    return (void)kind, (void)factor, false;
  }
  // How long sessions can get, told once before the first graph; without it, the model's context.
  virtual void expect_sessions(int64_t context) { (void)context; }
  // Logits of batch.outputs, (outputs, vocab), and what they are made of. Only sizes are read from
  // the batch.
  virtual void build(Graph& graph) const = 0;

  // What the engine asks of a model, whatever its architecture.
  int64_t vocab = 0, context = 0, n_layers = 0;
  int64_t row_columns =
      0;  // of the rows that come with its tokens (models/heads/eagle.h); 0: none do
  // Which of its tokens' hidden rows stand for a whole text.
  enum class Pooling { last, mean } pooling = Pooling::last;

  struct BoundWeight {
    Role role;
    const Weight* weight;
  };
  std::vector<BoundWeight> weights;  // of every slot that has one
};

struct Architecture {
  const char* name;             // general.architecture, here and in GGUF
  std::vector<std::string> hf;  // "architectures" in Hugging Face's config.json
  std::unique_ptr<Model> (*make)();
  // "model_type" of the text's part in config.json of a model that reads more than text.
  std::vector<std::string> hf_text = {};
};
template <class M>
std::unique_ptr<Model> make_model() {
  return std::make_unique<M>();
}

std::vector<Architecture>& architectures();                    // tests add theirs
const Architecture* find_architecture(std::string_view name);  // null: unknown
std::vector<std::string> architecture_names();

// A model with its hyperparameters, without its tensors. Throws Error(bad_file): an unknown
// architecture, a key that is missing, out of range or at odds with another.
std::unique_ptr<Model> model_of(const Metadata& meta);

// The same for importers: defaults are written into `meta`. `look_up` is called for a key before it
// is read: it puts the key into `meta` if the foreign file has it, and returns the name that the
// foreign file has for it.
using LookUp = std::function<std::string(const Key&)>;
std::unique_ptr<Model> complete_model(Metadata& meta, const LookUp& look_up);
// For metadata that an importer wrote under our own names.
void complete_model(Metadata& meta);

std::vector<TensorSlot> tensors_of(Model& model);

// Throws what bind_model() would throw of weights with these tensors, before any is read.
void expect_model(const ModelSource& source);
// Makes the model of weights.meta and binds its tensors. Throws Error(bad_file) also for a missing,
// unexpected or wrongly shaped tensor, each by name.
std::unique_ptr<Model> bind_model(const Weights& weights);

}  // namespace chaski
