#include "engine/passes/device_passes.h"

#include <algorithm>

#include "engine/pages/page_table.h"
#include "ggml-like-tensor/split.h"

namespace chaski {

Graph device_graph(const Model& model, int first_layer, const Batch& batch, Result what) {
  Graph graph(batch);
  model.build(graph);
  graph.want(what);
  return first_layer > 0 ? split(std::move(graph), first_layer).rest : graph;
}

DeviceNeeds device_needs(const Model& model, int first_layer, Format kv, int sessions, int outputs,
                         const CudaOptions& wanted) {
  DeviceNeeds needs{{}, wanted};
  for (const auto& [tokens, wanted_of_them] :
       {std::pair{wanted.max_batch, 1}, {outputs, outputs}}) {
    Batch batch;
    batch.tokens.resize(size_t(tokens)), batch.outputs.resize(size_t(wanted_of_them));
    Graph graph = device_graph(model, first_layer, batch);
    needs.weights = weights_of(graph);
    needs.options.states = StateLayout(graph.states, kv, true);
    needs.options.working =
        std::max(needs.options.working,
                 cuda_working_bytes(std::move(graph), batch, needs.options.states, wanted.context));
  }
  // and a few pages for copy on write
  for (const int64_t one :
       pages_of_session(needs.options.states.pools, wanted.context, wanted.max_batch))
    needs.options.pages.push_back({one, sessions * one + kPageGroup});
  return needs;
}

void DevicePasses::run(const Batch& batch, Result what, const float* input,
                       std::span<const CudaDraw> draws, Profile* profile) {
  CudaPlan& plan = plans_.get(batch, what, [&] {
    return backend_->plan(device_graph(model_, first_layer_, batch, what), batch);
  });
  std::vector<double> seconds;
  backend_->profile = profile ? &seconds : nullptr;
  backend_->run(plan, draws, input);
  if (profile) profile->add(plan.plan(), seconds, true), profile->kernels += plan.kernels();
}

}  // namespace chaski
