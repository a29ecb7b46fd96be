// A stage on a GPU whose experts stay on the CPU. Everything from a layer's feed-forward norm to
// its residual sum runs on the CPU. So one row of each token goes to the CPU and back in every
// layer with experts. Experts are most of such a model, and a token reads few of them.
#pragma once
#include "engine/passes/cuda_stage.h"
#include "ggml-like-tensor/executor.h"

namespace chaski {

class ExpertStage : public CudaStage {
 public:
  // As CudaStage. The CPU's part takes up to `threads` threads of the crew.
  ExpertStage(const Model& model, Layers layers, const Batch& batch,
              std::unique_ptr<CudaBackend> backend, std::shared_ptr<Crew> crew, int threads,
              bool threads_fixed);

  std::string device() const override { return CudaStage::device() + ", experts on the CPU"; }
  bool run(const PassWork& work, std::span<const float> input) override;

 private:
  // One of the two.
  struct Part {
    std::unique_ptr<CudaPlan> device;
    std::unique_ptr<Plan> cpu;
  };
  using Parts = std::vector<Part>;
  Parts parts(const PassWork& work) const;

  const Backend& cpu_;
  Executor executor_;
  PassContext where_;  // of the CPU: no states, no angles
  PlanCache<Parts> parts_;
};

}  // namespace chaski
