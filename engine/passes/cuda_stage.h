// A stage on a GPU.
#pragma once
#include <memory>

#include "engine/passes/plan_cache.h"
#include "engine/passes/stage.h"

namespace chaski {

// What a device needs to run some layers.
struct DeviceNeeds {
  std::vector<const Weight*> weights;  // that its passes read
  CudaOptions options;                 // those wanted, with the size of working memory filled in
};
// The pages are enough for `sessions` sessions, the working memory for passes of up to
// `wanted.max_batch` tokens and logits of up to `outputs` of them. Throws Error(device) if an op or
// a format of the model has no kernel. It does not access a device. With `cpu_experts` these are
// the needs of an ExpertStage; it throws Error(usage) if the experts cannot be cut out.
DeviceNeeds device_needs(const Model& model, Layers layers, Format kv, int sessions, int outputs,
                         const CudaOptions& wanted, bool cpu_experts = false);

class CudaStage : public Stage {
 public:
  // Runs `layers` over `batch`, which is the same object each time. Both outlive this.
  CudaStage(const Model& model, Layers layers, const Batch& batch,
            std::unique_ptr<CudaBackend> backend)
      : model_(model), layers_(layers), batch_(batch), backend_(std::move(backend)) {}

  CudaBackend& backend() { return *backend_; }

  Layers layers() const override { return layers_; }
  std::string device() const override;
  std::vector<int64_t> room() const override { return backend_->pages(); }
  void reserve(std::span<const int64_t> pages) override;
  void copy_page(int pool, int32_t from, int32_t to) override {
    backend_->copy_page(pool, from, to);
  }
  bool run(const PassWork& work, std::span<const float> input) override;
  std::span<const float> result() override { return backend_->result(); }
  std::span<const int32_t> tokens() override { return backend_->tokens(); }
  bool can_draw() const override { return true; }

 protected:
  const Model& model_;
  const Layers layers_;
  const Batch& batch_;
  const std::unique_ptr<CudaBackend> backend_;

 private:
  PlanCache<CudaPlan> plans_;
};

}  // namespace chaski
