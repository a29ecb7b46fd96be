#include "engine/passes/cuda_stage.h"

#include <algorithm>

#include "engine/pages/page_table.h"
#include "ggml-like-tensor/split.h"

namespace chaski {

namespace {

// The parts of a stage's graph that run on the device.
std::vector<Graph> device_parts(Graph graph, bool cpu_experts) {
  std::vector<Graph> parts;
  if (!cpu_experts) {
    parts.push_back(std::move(graph));
    return parts;
  }
  std::vector<Graph> all = around_experts(graph);
  if (all.empty())
    fail(Exit::usage,
         "--cpu-experts is given, but more than one value goes into the experts of this model");
  for (size_t i = 0; i < all.size(); i += 2) parts.push_back(std::move(all[i]));
  return parts;
}

}  // namespace

DeviceNeeds device_needs(const Model& model, Layers layers, Format kv, int sessions, int outputs,
                         const CudaOptions& wanted, bool cpu_experts) {
  DeviceNeeds needs{{}, wanted};
  CudaWorking working(wanted.context, wanted.shared_limit);
  // A pass has any number of tokens and outputs. The largest of each part of its memory: the most
  // tokens, the most outputs, and the most tokens over which a kernel splits the context.
  const int split = std::min(kCudaSplitTokens, wanted.max_batch);
  for (const auto& [tokens, wanted_of_them] :
       {std::pair{wanted.max_batch, std::min(outputs, wanted.max_batch)}, {split, 1}, {1, 1}}) {
    Batch batch;
    batch.tokens.resize(size_t(tokens)), batch.outputs.resize(size_t(wanted_of_them));
    Graph graph = stage_graph(model, layers, batch);
    needs.options.states = StateLayout(graph.states, kv, true);
    needs.weights.clear();
    for (Graph& part : device_parts(std::move(graph), cpu_experts)) {
      for (const Weight* weight : weights_of(part))  // a tied head is in the first and last part
        if (std::ranges::find(needs.weights, weight) == needs.weights.end())
          needs.weights.push_back(weight);
      working.add(std::move(part), batch, needs.options.states);
    }
  }
  needs.options.working = working.bytes();
  // and a few pages for copy on write
  for (const int64_t one :
       pages_of_session(needs.options.states.pools, wanted.context, wanted.max_batch))
    needs.options.pages.push_back({one, sessions * one + kPageGroup});
  return needs;
}

std::string CudaStage::device() const {
  const CudaDevice& d = backend_->device();
  return fmt::format("cuda:{} ({})", d.index, d.name);
}

// The backend has taken the memory of all its pages when it was opened.
void CudaStage::reserve(std::span<const int64_t> pages) {
  for (size_t i = 0; i < pages.size(); ++i)
    ENSURE(pages[i] <= backend_->pages()[i], "no more pages than the device has room for");
}

bool CudaStage::run(const PassWork& work, std::span<const float> input) {
  ENSURE(work.result != Result::both, "only the CPU computes two results");
  CudaPlan& plan = plans_.get(batch_, work.result, work.network, [&] {
    return backend_->plan(stage_graph(model_, layers_, batch_, work.result, work.network), batch_);
  });
  std::vector<double> seconds;
  backend_->profile = work.profile ? &seconds : nullptr;
  backend_->run(plan, work.draws, input.data());
  if (work.profile)
    work.profile->add(plan.plan(), seconds, true), work.profile->kernels += plan.kernels();
  return true;
}

}  // namespace chaski
