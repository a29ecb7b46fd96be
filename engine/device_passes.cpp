#include "engine/device_passes.h"

#include <algorithm>

#include "ggml-like-tensor/split.h"

namespace chaski {

Graph device_graph(const Model& model, int first_layer, const Batch& batch) {
  Graph graph(batch);
  model.build(graph);
  return first_layer > 0 ? split(std::move(graph), first_layer).rest : graph;
}

DeviceShare device_share(const Model& model, int first_layer, const CudaOptions& wanted,
                         int outputs) {
  DeviceShare share{{}, wanted};
  share.options.kv.layers = int(model.n_layers) - first_layer;
  for (const auto& [tokens, wanted_of_them] :
       {std::pair{wanted.max_batch, 1}, {outputs, outputs}}) {
    Batch batch;
    batch.kv.layout = share.options.kv;
    batch.tokens.resize(size_t(tokens)), batch.positions.resize(size_t(tokens)),
        batch.outputs.resize(size_t(wanted_of_them));
    Graph graph = device_graph(model, first_layer, batch);
    share.weights = weights_of(graph);
    share.options.working = std::max(share.options.working,
                                     cuda_working_bytes(std::move(graph), batch, wanted.context));
  }
  return share;
}

void DevicePasses::run(const Batch& batch, const float* input, const CudaDraw* draw,
                       Profile* profile) {
  batch_.tokens = batch.tokens, batch_.positions = batch.positions, batch_.tables = batch.tables,
  batch_.outputs = batch.outputs;
  CudaPlan& plan = plans_.get(
      batch_, [&] { return backend_->plan(device_graph(model_, first_layer_, batch_), batch_); });
  std::vector<double> seconds;
  backend_->profile = profile ? &seconds : nullptr;
  backend_->run(plan, draw, input);
  if (profile) profile->add(plan.plan(), seconds, true), profile->kernels += plan.kernels();
}

}  // namespace chaski
