// Forward passes on the CPU, of a whole model or of its first layers.
#pragma once
#include <functional>
#include <optional>

#include "engine/passes/plan_cache.h"
#include "engine/passes/profile.h"
#include "ggml-like-tensor/executor.h"
#include "models/architecture.h"

namespace chaski {

// The graph of the first `layers` layers. With all layers it also computes the result.
Graph cpu_graph(const Model& model, int layers, const Batch& batch, Result what = Result::logits);

class CpuPasses {
 public:
  // Runs the first `layers` of the model over `batch`. `where` has their states and gets the rotary
  // angles. All outlive this.
  CpuPasses(const Model& model, int layers, const Batch& batch, PassContext& where, int threads,
            bool threads_fixed);

  // Runs the current batch. `rows` has an input row for each token, if the model reads such.
  // Returns a row of `what` for each output or, if layers follow on a device, their input (tokens,
  // dim). The rows are valid until the next run. Returns nothing if the pass was abandoned because
  // `stop` was set. Adds times to `profile` unless it is null.
  std::optional<const float*> run(Result what, std::span<const float> rows, Profile* profile,
                                  const std::atomic<bool>* stop);
  // From now on runs only layers [first, last) of a single session; without a part, all layers.
  // can_split() must allow both borders. `rows` has the input of layer `first` by cell, unless that
  // is layer 0. It is replaced by the output of layer `last` - 1, unless `keep_input` is set or
  // that is the model's last layer.
  struct Part {
    int first, last;
    std::vector<float>* rows;
    bool keep_input = false;
  };
  void only(std::optional<Part> part);
  // After a run for Result::both: a hidden state for each token, or a row of the output that
  // give_beside() chose.
  const float* hidden() const { return hidden_; }
  // From now on the second output of Result::both is the value that `made` adds to the graph,
  // instead of the hidden states.
  void give_beside(std::function<ValueId(Graph&)> made);
  bool gives_beside() const { return bool(made_); }
  Executor& executor() { return executor_; }
  const Backend& backend() const { return backend_; }

 private:
  std::unique_ptr<Plan> plan(Result what) const;
  void expect_memory(const Plan& plan);  // throws Error(memory)
  void give_part(Plan& plan);
  void take_part(const Plan& plan);
  void extend_ropes(const Graph& graph);

  const Model& model_;
  const int layers_;
  const Batch& batch_;
  PassContext& where_;
  const Backend& backend_;
  Executor executor_;
  std::function<ValueId(Graph&)> made_;
  std::optional<Part> part_;
  PlanCache<Plan> plans_;
  std::vector<std::vector<float>> ropes_;
  const float* hidden_ = nullptr;
  uint64_t taken_ = 0;  // bytes of activations that expect_memory() has allowed
};

}  // namespace chaski
