// A stage runs consecutive layers of a model on one backend. A pass goes through the stages of an
// engine in order. The rows that a stage returns are the input of the next one, and the last stage
// computes the result. All stages use the same page numbers, and each stores the pages of the
// states of its own layers.
#pragma once
#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "cuda/backend.h"
#include "engine/passes/profile.h"
#include "ggml-like-tensor/rank_share.h"
#include "models/architecture.h"

namespace chaski {

// Layers [first, end).
struct Layers {
  int first = 0, end = 0;
  int count() const { return end - first; }
  bool operator==(const Layers&) const = default;
};

inline Layers all_layers(const Model& model) { return {0, int(model.n_layers)}; }

// The graph of these layers. With the last layer it also computes the result; without it, the rows
// that cross to the next layer.
Graph stage_graph(const Model& model, Layers layers, const Batch& batch,
                  Result what = Result::logits, Network network = Network::decoder);

// The states of these layers in the layout of the CPU: with `share` those of a rank's key heads.
// The pools are those of the whole model; the states of other layers take no memory in them.
StateLayout states_of(const Model& model, Layers layers, Format kv, RankShare* share = nullptr);

// What a pass computes, the same for all stages.
struct PassWork {
  Result result = Result::logits;
  Network network = Network::decoder;
  // If not empty: one for each output, and the last stage draws the tokens.
  std::span<const CudaDraw> draws = {};
  const std::atomic<bool>* stop = nullptr;  // abandons the pass when set
  // Bytes of new memory that the pages of this batch and of the later batches of the pass will
  // take. Activations must not use it.
  uint64_t promised = 0;
  Profile* profile = nullptr;  // adds times to it, unless null
};

class Stage {
 public:
  virtual ~Stage() = default;

  virtual Layers layers() const = 0;
  virtual std::string device() const = 0;  // "cpu", "cuda:0 (NVIDIA H200)"
  // The pages of each pool that it has room for. Empty: as many as reserve() asks for.
  virtual std::vector<int64_t> room() const { return {}; }
  // Called once before the first pass: there will be this many pages in each pool.
  virtual void reserve(std::span<const int64_t> pages) = 0;
  virtual void copy_page(int pool, int32_t from, int32_t to) = 0;
  // Where the states are, if they are in the memory of the host; else null.
  virtual const StateLayout* host_states() const { return nullptr; }
  // Bytes that a page of a pool takes in the memory of the host.
  virtual size_t host_page_bytes(int) const { return 0; }

  // Runs the layers over the engine's batch. `input` has a row for each token: what the stage
  // before returned, or for the first stage the input rows of a model that reads such. Returns
  // false if the pass was abandoned. The stage may still be working when this returns.
  virtual bool run(const PassWork& work, std::span<const float> input) = 0;
  // Of the last run, valid until the next one; both wait for the stage. The last stage returns a
  // row of the result for each output, the others a row for each token.
  virtual std::span<const float> result() = 0;
  // The drawn tokens: one for each output, or -1 if a logit is not finite.
  virtual std::span<const int32_t> tokens() { return {}; }
  // After a run of the last stage for Result::both: a hidden state for each token.
  virtual const float* all_hidden() const { return nullptr; }
  // Whether it makes the draws of PassWork.
  virtual bool can_draw() const { return false; }
};

}  // namespace chaski
