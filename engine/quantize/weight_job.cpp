#include "engine/quantize/weight_job.h"

#include <fmt/format.h>

#include <unordered_map>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

WeightJobs jobs_of(const ModelSource& in) {
  std::unordered_map<std::string, TensorSlot> slots;
  for (TensorSlot& slot : tensors_of(*model_of(in.meta))) {
    slot.weight = nullptr;  // of a model that ends here
    slots.emplace(slot.name, slot);
  }
  WeightJobs jobs;
  jobs.reserve(in.tensors.size());
  for (const TensorSource& tensor : in.tensors) {
    const auto slot = slots.find(tensor.info.name);
    jobs.push_back({.original = &tensor,
                    .source = tensor,
                    .slot = slot != slots.end() ? slot->second : TensorSlot{}});
  }
  return jobs;
}

void add_inputs(WeightJobs& jobs, const Calibration& calibration, const std::string& file) {
  for (WeightJob& job : jobs) {
    const TensorInfo& to = job.from();
    if (job.slot.gguf.empty() || !to.tiled()) continue;
    const auto found = calibration.inputs.find(job.slot.gguf);
    if (found == calibration.inputs.end()) continue;
    const InputSquares& squares = found->second;
    job.measured = &squares, job.inputs = squares;
    if (squares.fit(to)) continue;
    const std::string several =
        squares.experts() > 1 ? fmt::format(" for each of {} experts", squares.experts()) : "";
    fail(Exit::bad_file,
         "{}: tensor {} has {} columns, but the calibration has {} numbers for it{}: it was "
         "measured on another model. Expected a calibration of this model, or --calibrate TEXT",
         file, escaped(to.name), to.cols, squares.cols, several);
  }
}

std::vector<Feedbacks::Expected> weights_with_feedback(const WeightJobs& jobs) {
  std::vector<Feedbacks::Expected> weights;
  for (const WeightJob& job : jobs) {
    const TensorInfo& from = job.source.info;
    if (!job.inputs || !feeds_back(job.choice.to) || job.choice.to == from.format) continue;
    const int64_t experts = job.inputs->experts();
    if (experts == 1 && job.has_inputs()) weights.push_back({{from.name}, from.cols});
    for (int64_t e = 0; experts > 1 && e < experts; ++e)
      if (job.inputs->tokens[size_t(e)] >= kFewestTokens)
        weights.push_back({{from.name, e}, from.cols});
  }
  return weights;
}

}  // namespace chaski
