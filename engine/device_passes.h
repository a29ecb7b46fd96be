// Forward passes of a GPU: of a whole model, or of its last layers, behind what the CPU did of the
// first.
#pragma once
#include "cuda/backend.h"
#include "engine/bench/profile.h"
#include "engine/plan_cache.h"
#include "models/architecture.h"

namespace chaski {

// What a device gets of a model: the layers from `first_layer` on, and the logits.
Graph device_graph(const Model& model, int first_layer, const Batch& batch);
// What passes of at most `max_batch` tokens are made of there, and what they need: weights, working
// memory. Error(device) if there is an op or a format without a kernel.
struct DeviceShare {
  std::vector<const Weight*> weights;
  CudaOptions options;
};
// `sessions`: whose pages are wanted there.
DeviceShare device_share(const Model& model, int first_layer, Format kv, int sessions,
                         const CudaOptions& wanted);

class DevicePasses {
 public:
  DevicePasses(const Model& model, int first_layer, std::unique_ptr<CudaBackend> backend)
      : model_(model), first_layer_(first_layer), backend_(std::move(backend)) {
    batch_.states = backend_->states();
  }

  CudaBackend& backend() { return *backend_; }
  int first_layer() const { return first_layer_; }

  // One pass over what `batch` is about; `input`: what the first
  // layer here reads, (tokens, dim), unless it is the model's first. With `draw`, tokens are drawn
  // as well.
  void run(const Batch& batch, const float* input, const CudaDraw* draw, Profile* profile);
  const float* logits() { return backend_->logits().data(); }
  std::span<const int32_t> tokens() { return backend_->tokens(); }

 private:
  const Model& model_;
  const int first_layer_;
  std::unique_ptr<CudaBackend> backend_;
  Batch batch_;
  PlanCache<CudaPlan> plans_;
};

}  // namespace chaski
