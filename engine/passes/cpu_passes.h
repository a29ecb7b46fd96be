// Forward passes of the CPU: of a whole model, or of its first layers.
#pragma once
#include <functional>
#include <optional>

#include "engine/passes/plan_cache.h"
#include "engine/passes/profile.h"
#include "ggml-like-tensor/executor.h"
#include "models/architecture.h"

namespace chaski {

// What the CPU gets of a model: the first `layers`; with all of them, the result too.
Graph cpu_graph(const Model& model, int layers, const Batch& batch, Result what = Result::logits);

class CpuPasses {
 public:
  // The first `layers` of the model over `batch`. `where` has their states; the angles are put
  // there. All outlive this.
  CpuPasses(const Model& model, int layers, const Batch& batch, PassContext& where, int threads,
            bool threads_fixed);

  // Of the batch as it is now, and of a row for each token if the model goes by such: a row of
  // `what` for each output, or what the next layer reads, (tokens, dim). Valid until the next run.
  // Times are added to `profile` unless it is null.
  // Nothing if the pass was abandoned, which it is when `stop` is set before it is over.
  std::optional<const float*> run(Result what, std::span<const float> rows, Profile* profile,
                                  const std::atomic<bool>* stop);
  // From now on only layers [first, last), of which can_split() says both, are run; whoever wants
  // all again gives nothing. `rows` has a row of what goes into layer `first` for each cell of the
  // one session that is read, and gets what comes out of layer `last` - 1 in its place, unless it
  // `stays`; nothing goes into layer 0, and nothing comes out of the model's last.
  struct Part {
    int first, last;
    std::vector<float>* rows;
    bool stays = false;
  };
  void only(std::optional<Part> part);
  // Of the last run, if it was for Result::both: a hidden row for each token, or a row of what
  // give_beside() says.
  const float* hidden() const { return hidden_; }
  // From now on Result::both gives out what this adds to the graph, not the hidden rows.
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
  uint64_t taken_ = 0;  // bytes of activations that were asked for
};

}  // namespace chaski
