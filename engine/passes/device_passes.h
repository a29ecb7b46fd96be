// Forward passes on a GPU, of a whole model or of its last layers, after the CPU has run the first
// ones.
#pragma once
#include "cuda/backend.h"
#include "engine/passes/plan_cache.h"
#include "engine/passes/profile.h"
#include "models/architecture.h"

namespace chaski {

// The graph of the layers from `first_layer` on, up to the result.
Graph device_graph(const Model& model, int first_layer, const Batch& batch,
                   Result what = Result::logits);

// What a device needs to run some layers.
struct DeviceNeeds {
  std::vector<const Weight*> weights;  // that its passes read
  CudaOptions options;                 // those wanted, with the size of working memory filled in
};
// The pages are enough for `sessions` sessions, the working memory for passes of up to
// `wanted.max_batch` tokens and logits of up to `outputs` of them. Throws Error(device) if an op or
// a format of the model has no kernel. It does not access a device.
DeviceNeeds device_needs(const Model& model, int first_layer, Format kv, int sessions, int outputs,
                         const CudaOptions& wanted);

class DevicePasses {
 public:
  DevicePasses(const Model& model, int first_layer, std::unique_ptr<CudaBackend> backend)
      : model_(model), first_layer_(first_layer), backend_(std::move(backend)) {}

  CudaBackend& backend() { return *backend_; }
  int first_layer() const { return first_layer_; }

  // Runs `batch`, which is the same object each time, and computes a row of `what` for each output.
  // `input` has the input of the first layer, (tokens, dim), unless that is the model's first. If
  // `draws` has one draw for each output, tokens are drawn from the logits.
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
