// A graph made ready for a backend: fused, every value given a place in one arena. Values whose
// lives do not overlap share memory.
#pragma once
#include <functional>
#include <memory>

#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/fuse.h"

namespace chaski {

struct Step {
  AnyOp op;
  OpArgs args;
  const KernelEntry* kernel;       // null in a plan for a device with kernels of its own
  int64_t units = 0, a_chunk = 0;  // of the work of the next run, and of its chunks
};

// Where a weight's bytes are for the kernels of a plan.
using WeightPlace = std::function<std::byte*(const Weight&)>;

class Plan {
 public:
  // Weights must outlive the plan, `batch` and `where` too: they are read when steps run, and the
  // batch must then have the number of tokens and outputs that the graph was built for.
  Plan(Graph graph, const Backend& backend, const Batch& batch, const PassContext& where,
       Fuse which = Fuse::all);
  // For a device (cuda/backend.h): fused and placed; whether its kernels can do the steps is for
  // the device to ask once it is bound. Up to `together` neighbouring steps may run as one: what
  // one of them reads is not written over by another.
  Plan(Graph graph, const Batch& batch, const PassContext& where, int together = 1,
       Fuse which = Fuse::all);

  size_t arena_bytes() const { return arena_bytes_; }
  // Before the first run and whenever the arena (64-byte aligned) moved. Without `place` weights
  // are where they were loaded.
  void bind(std::byte* arena, const WeightPlace& place = {});
  const std::byte* bound_to() const { return arena_; }  // null: to nothing yet
  // On the CPU, before each run, with its batch: how its work is cut, and what follows.
  void prepare();
  size_t scratch_bytes() const { return needs_.scratch; }  // of a CPU thread
  size_t shared_bytes() const { return needs_.shared; }    // of all CPU threads together
  // How many of `most` CPU threads pay, by the operations' cost: more would wait for each other
  // longer than they work.
  int threads_worth(int most) const;
  // (outputs, vocab), or what the graph was split at
  const float* result() const { return result_; }
  // Graph::beside; null: there is none
  const float* beside() const { return beside_; }
  // to be filled before each run, if the graph has one
  float* input() const { return input_; }
  Shape result_shape() const { return graph_.values[size_t(graph_.result)].shape; }
  Shape input_shape() const {
    return graph_.input == kNone ? Shape{} : graph_.values[size_t(graph_.input)].shape;
  }

  std::vector<Step> steps;
  const Graph& graph() const { return graph_; }

 private:
  // What steps need of memory, and of time where a thread is alone, about.
  struct Needs {
    size_t scratch = 0, shared = 0;
    double seconds = 0;
  };
  void place_values(int together);
  static void cut(Step& step, Needs& needs);
  Graph graph_;
  const Batch& batch_;
  const PassContext& where_;
  std::vector<size_t> offsets_;  // per value
  size_t arena_bytes_ = 0;
  std::byte* arena_ = nullptr;
  // A step that holds a state has the more work the longer its sequences are. All else is known
  // when the plan is bound.
  std::vector<size_t> with_state_;
  Needs bound_needs_, needs_;  // of the other steps; of all, in the next run
  const float *result_ = nullptr, *beside_ = nullptr;
  float* input_ = nullptr;
};

}  // namespace chaski
