// What a model takes of memory when it runs, worked out from the shapes of its tensors before any
// of its matrices is read. Engine::open() refuses by it, and `chaski plan` tells it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/engine.h"
#include "ggml-like-tensor/plan.h"
#include "models/architecture.h"

namespace chaski {

// A model whose matrices are nowhere and only as large as they will be. Its vectors are read,
// because they may decide about a graph.
class ShapedModel {
 public:
  explicit ShapedModel(const ModelSource& source);  // throws what bind_model() throws
  Model& operator*() { return *model_; }

 private:
  Weights shapes_;
  std::vector<std::vector<std::byte>> vectors_;
  std::unique_ptr<Model> model_;
};

// A pass of the CPU over one sequence, ready to be measured, never to be run.
class ImaginedPass {
 public:
  // Of the cells [from, end), with the result of the last `outputs` of them.
  ImaginedPass(const Model& model, int layers, Format kv, int from, int end, int outputs);
  const Plan& plan() const { return *plan_; }

 private:
  std::vector<int32_t> pages_;
  Batch batch_;
  PassContext where_;
  std::unique_ptr<Plan> plan_;
};

// The states of the model's first layers.
StateLayout states_of(const Model& model, int layers, Format kv);

// What a model file keeps of a sequence, without opening it as an engine. The KV cache has format
// `kv`. Nothing for a model that chaski cannot run.
std::optional<StateBytes> state_bytes(const ModelSource& source, Format kv);

// Of weights, that one decoded token reads: of every matmul, once.
uint64_t weight_bytes_a_token(const Model& model);

// Bytes that the CPU's part of a model takes, by what takes them.
class Footprint {
 public:
  // The first `layers` run here, by so many threads. The model outlives this. Error(usage) where
  // its keys and values cannot be kept in `kv`.
  Footprint(const Model& model, int layers, Format kv, int threads);

  uint64_t weights() const { return weights_; }  // of the whole model
  // The same after `chaski quantize --type`.
  uint64_t weights_in(Format format) const;
  // Keys, values and recurrent states of a sequence as long as the context, and the angles of its
  // positions.
  uint64_t states(int context) const;
  // Of the largest pass: values, quantized activations, what threads add up in.
  uint64_t activations(int context) const;
  // The longest context up to `most` whose states and activations fit; 0: none.
  int longest_context(uint64_t bytes, int most) const;

 private:
  const Model& model_;
  const int layers_;
  const Format kv_;
  const int threads_;
  uint64_t weights_ = 0;
  StateLayout layout_;
  uint64_t angles_ = 0;  // bytes a position
};

// What can be counted on of memory that is free now: it may be a little less when it is taken, and
// where addresses are limited threads take some.
uint64_t prudent(uint64_t have, int threads);

// A way to run what does not fit as it was asked for.
struct Remedy {
  int context;                    // the longest that fits so, up to what was asked for
  Format kv;                      // of keys and values
  std::optional<Format> weights;  // that they have to be quantized to
  uint64_t bytes;                 // weights, states and activations
};
// Those that leave a context of at least kPage tokens, in the order of what has to be changed: the
// context, then keys and values, then the weights. `have` is for states, activations and, unless
// they are `mapped`, weights.
std::vector<Remedy> remedies(const Model& model, int layers, const EngineOptions& options,
                             int threads, int context, uint64_t have, bool mapped);
std::string remedy_text(const Remedy& remedy, const EngineOptions& options, int context);

// Throws Error(memory), with what would fit, where a model of these tensors cannot run so: before
// any of them is read. `mapped`: the weights stay in their file. Without --ctx pages are taken as
// the text grows, so that no context is too long.
void expect_memory(const ModelSource& source, bool mapped, const EngineOptions& options);

}  // namespace chaski
