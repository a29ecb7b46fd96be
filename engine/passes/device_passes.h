// Forward passes of a GPU: of a whole model, or of its last layers, behind what the CPU did of the
// first.
#pragma once
#include "cuda/backend.h"
#include "engine/passes/plan_cache.h"
#include "engine/passes/profile.h"
#include "models/architecture.h"

namespace chaski {

// The graph of a device that has the layers from `first_layer` on: it ends with the result, as the
// graph of the whole model does.
Graph device_graph(const Model& model, int first_layer, const Batch& batch,
                   Result what = Result::logits);

// What a device with these layers has to hold.
struct DeviceNeeds {
  std::vector<const Weight*> weights;  // that its passes read
  CudaOptions options;                 // as wanted, with the bytes of working memory filled in
};
// `sessions`: whose pages are wanted there. The working memory is enough for every pass of at most
// `wanted.max_batch` tokens that asks for the logits of at most `outputs` of them. Throws
// Error(device) where an op or a format of the model has no kernel. No device is touched.
DeviceNeeds device_needs(const Model& model, int first_layer, Format kv, int sessions, int outputs,
                         const CudaOptions& wanted);

class DevicePasses {
 public:
  DevicePasses(const Model& model, int first_layer, std::unique_ptr<CudaBackend> backend)
      : model_(model), first_layer_(first_layer), backend_(std::move(backend)) {}

  CudaBackend& backend() { return *backend_; }
  int first_layer() const { return first_layer_; }

  // One pass over `batch`, every time the same object, for a row of `what` for each output;
  // `input`: what the first layer here reads, (tokens, dim), unless it is the model's first. With
  // `draws`, one for each output, tokens are drawn from the logits as well.
  void run(const Batch& batch, Result what, const float* input, std::span<const CudaDraw> draws,
           Profile* profile);
  const float* result() { return backend_->result().data(); }
  std::span<const int32_t> tokens() { return backend_->tokens(); }

 private:
  const Model& model_;
  const int first_layer_;
  std::unique_ptr<CudaBackend> backend_;
  PlanCache<CudaPlan> plans_;
};

}  // namespace chaski
