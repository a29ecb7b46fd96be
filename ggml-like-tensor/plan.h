// A graph made ready for a backend: fused, every op present in the backend's table, every value given a place in one arena. Values
// whose lives do not overlap share memory.
#pragma once
#include <memory>

#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/graph.h"

namespace chaski {

struct Step {
  AnyOp op;
  OpArgs args;
  const KernelEntry* kernel;
};

class Plan {
 public:
  // Throws Error(device) naming an op the backend lacks. Weights must outlive the plan, `batch` too: it is read when steps run, and
  // must then have the number of tokens and outputs that the graph was built for.
  Plan(Graph graph, const Backend& backend, const Batch& batch);

  size_t arena_bytes() const { return arena_bytes_; }
  size_t scratch_bytes() const { return scratch_bytes_; }  // a thread
  size_t shared_bytes() const { return shared_bytes_; }    // all threads together
  void bind(std::byte* arena);                             // 64-byte aligned, before the first run and whenever it moved
  const float* result() const { return result_; }         // (outputs, vocab)

  std::vector<Step> steps;
  size_t barriers() const { return steps.size(); }  // of a run by several threads: one after each step
  const Graph& graph() const { return graph_; }

 private:
  void place_values();
  Graph graph_;
  const Batch& batch_;
  std::vector<size_t> offsets_;  // per value
  size_t arena_bytes_ = 0, scratch_bytes_ = 0, shared_bytes_ = 0;
  const float* result_ = nullptr;
};

}  // namespace chaski
