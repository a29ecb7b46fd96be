#include "engine/passes/expert_stage.h"

#include <algorithm>

#include "ggml-like-tensor/split.h"

namespace chaski {

ExpertStage::ExpertStage(const Model& model, Layers layers, const Batch& batch,
                         std::unique_ptr<CudaBackend> backend, std::shared_ptr<Crew> crew,
                         int threads, bool threads_fixed)
    : CudaStage(model, layers, batch, std::move(backend)),
      cpu_(cpu_backend()),
      executor_(std::move(crew), threads, threads_fixed) {}

ExpertStage::Parts ExpertStage::parts(const PassWork& work) const {
  Parts parts;
  for (Graph& part :
       around_experts(stage_graph(model_, layers_, batch_, work.result, work.network)))
    if (parts.size() % 2 == 0)
      parts.push_back({backend_->plan(std::move(part), batch_), nullptr});
    else
      parts.push_back({nullptr, std::make_unique<Plan>(std::move(part), cpu_, batch_, where_)});
  return parts;
}

bool ExpertStage::run(const PassWork& work, std::span<const float> input) {
  ENSURE(work.result != Result::both, "only the CPU computes two results");
  Parts& parts = parts_.get(batch_, work.result, work.network,
                            [&] { return std::make_unique<Parts>(this->parts(work)); });
  std::vector<double> seconds;
  std::vector<double>* const profile = work.profile ? &seconds : nullptr;
  for (const Part& part : parts) {
    const bool last = &part == &parts.back();
    if (part.device) {
      backend_->profile = profile;
      backend_->run(*part.device, last ? work.draws : std::span<const CudaDraw>(), input.data());
      if (profile)
        work.profile->add(part.device->plan(), seconds, true),
            work.profile->kernels += part.device->kernels();
      if (!last) input = backend_->result();
      continue;
    }
    executor_.make_room(*part.cpu);
    std::copy(input.begin(), input.end(), part.cpu->input());
    executor_.profile = profile;
    const bool done = executor_.run(*part.cpu, work.stop);
    executor_.profile = nullptr;
    if (!done) return false;
    if (profile) work.profile->add(*part.cpu, seconds, false);
    const Shape rows = part.cpu->result_shape();
    input = {part.cpu->result(), size_t(rows.rows * rows.cols)};
  }
  return true;
}

}  // namespace chaski
