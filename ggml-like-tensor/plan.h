// A graph prepared for a backend: it is fused, and every value has a place in one arena. Values
// that are not alive at the same time share memory.
#pragma once
#include <functional>
#include <memory>

#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/fuse.h"
#include "ggml-like-tensor/rank_share.h"

namespace chaski {

struct Step {
  AnyOp op;
  OpArgs args;
  const KernelEntry* kernel;       // null in a plan for a device with its own kernels
  int64_t units = 0, a_chunk = 0;  // units of work of the next run; units in a chunk
  // The weights that later steps multiply by the experts that this step chooses, as far as memory
  // does not hold all of their experts (expert_cache.h).
  struct Announced {
    ExpertPlaces* places;
    Operand chosen;
  };
  std::vector<Announced> announced = {};
  bool reads_file = false;  // whether it reads such a weight
  // Values that the ranks complete together after the step (rank_share.h). Either the floats or the
  // quantized values of a gather are set.
  struct Gathered {
    Operand own, whole;
    ActsView own_acts, acts;
    const Gather* gather;
  };
  std::vector<Gathered> gathers = {};
};

// Returns the address of a weight's bytes for the kernels of a plan.
using WeightPlace = std::function<std::byte*(const Weight&)>;

class Plan {
 public:
  // Weights, `batch` and `where` must outlive the plan: they are read when steps run. When it runs,
  // the batch must have the number of tokens and outputs that the graph was built for. `share`: the
  // part of a rank, which outlives the plan; null: the whole graph.
  Plan(Graph graph, const Backend& backend, const Batch& batch, const PassContext& where,
       Fuse which = Fuse::all, RankShare* share = nullptr);
  // A plan for a device (cuda/backend.h): fused and placed. The device checks after binding whether
  // it has kernels for the steps. Up to `fused_steps` neighbouring steps may run as one, so memory
  // that one of them reads is not overwritten by another.
  Plan(Graph graph, const Batch& batch, const PassContext& where, int fused_steps = 1,
       Fuse which = Fuse::all, RankShare* share = nullptr);

  size_t arena_bytes() const { return arena_bytes_; }
  // Call it before the first run and whenever the arena (64-byte aligned) has moved. Without
  // `place`, weights are where they were loaded.
  void bind(std::byte* arena, const WeightPlace& place = {});
  const std::byte* bound_to() const { return arena_; }  // null if not bound yet
  // Call it before each run on the CPU. It cuts the work of the current batch into chunks and
  // computes what depends on that.
  void prepare();
  size_t scratch_bytes() const { return needs_.scratch; }  // of each CPU thread
  size_t shared_bytes() const { return needs_.shared; }    // of all CPU threads together
  // The number of CPU threads, at most `most`, that pay off by the cost of the operations. More
  // threads would wait for each other longer than they work.
  int threads_worth(int most) const;
  // (outputs, vocab), or the value that the graph was split at
  const float* result() const { return result_; }
  // Graph::all_hidden; null if there is none
  const float* all_hidden() const { return all_hidden_; }
  // must be filled before each run, if the graph has an input
  float* input() const { return input_; }
  Shape result_shape() const { return graph_.values[size_t(graph_.result)].shape; }
  Shape input_shape() const {
    return graph_.input == kNone ? Shape{} : graph_.values[size_t(graph_.input)].shape;
  }

  std::vector<Step> steps;
  const Graph& graph() const { return graph_; }

 private:
  // The memory that steps need, and roughly the time that they take on one thread.
  struct Needs {
    size_t scratch = 0, shared = 0;
    double seconds = 0;
  };
  void place_values(int fused_steps);
  static void cut(Step& step, Needs& needs);
  void announce_experts();
  void bind_gathers();
  Graph graph_;
  const Batch& batch_;
  const PassContext& where_;
  RankShare* const share_;
  std::vector<Gather> gathers_;  // in the order of their steps
  std::vector<size_t> offsets_;  // by value
  size_t arena_bytes_ = 0;
  std::byte* arena_ = nullptr;
  // A step with a state has more work with longer sequences. Everything else is known when the plan
  // is bound.
  std::vector<size_t> with_state_;
  Needs bound_needs_, needs_;  // of the steps without a state; of all steps in the next run
  const float *result_ = nullptr, *all_hidden_ = nullptr;
  float* input_ = nullptr;
};

}  // namespace chaski
