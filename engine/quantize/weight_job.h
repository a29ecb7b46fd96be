// One tensor of the input on its way through the quantizer. jobs_of() makes a job for each tensor.
// A budget or mixture (budget.h, mixture.h) reads them for its recipe, then quantize_model() passes
// them through its phases; each phase fills in one member:
//   jobs_of             original, source, slot
//   add_inputs          measured, inputs
//   choose_formats      choice                    (choose_formats.cpp)
//   set_outliers_aside  outliers; zeros in source (outliers.h)
//   scale_inputs        scales, power             (awq.h)
//   add_outlier_jobs    two more jobs for each weight that has outliers
//   make_encoders       encoder
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/quantize/awq.h"
#include "engine/quantize/calibration.h"
#include "engine/quantize/tensor_encoder.h"
#include "models/architecture.h"

namespace chaski {

struct QuantizeOptions;

struct FormatChoice {
  Format to = Format::f32;
  std::string reason;    // why it is not the format of --type; empty if it is
  bool settled = false;  // not raised, whatever its error is
};

struct WeightJob {
  const TensorSource* original = nullptr;  // in the input; null for a tensor that quantize adds
  TensorSource source;                     // what is encoded: scaled, without outliers
  TensorSlot slot = {};                    // role and names; its `weight` is null
  FormatChoice choice = {};
  const InputSquares* measured = nullptr;   // of the calibration; null: unknown
  std::optional<InputSquares> inputs = {};  // the same for `source`
  TensorScales scales = {};
  InputPower power = {};
  std::vector<int64_t> outliers = {};  // columns in ascending order
  std::unique_ptr<TensorEncoder> encoder = {};
  bool kept = false;  // whether an earlier run that was killed had finished it

  const TensorInfo& from() const { return original ? original->info : source.info; }
  const InputSquares* known_inputs() const { return inputs ? &*inputs : nullptr; }
  // Whether the mean squares of all inputs are known, and are the same for all rows (no experts).
  bool has_inputs() const { return inputs && inputs->experts() == 1 && inputs->too_few().empty(); }
  // Whether the weight is converted to a block format. `source` is f32 once it was changed.
  bool gets_blocks() const { return choice.to != source.info.format && info(choice.to).block > 1; }
};
using WeightJobs = std::vector<WeightJob>;

// A job for each tensor, in the order of the file. The source must outlive the jobs. A tensor
// that its architecture does not know has the role of a matmul weight.
WeightJobs jobs_of(const ModelSource& in);

// Throws Error(bad_file) for a calibration that was measured on a model of other shapes. The
// calibration must outlive the jobs.
void add_inputs(WeightJobs& jobs, const Calibration& calibration, const std::string& file);

// First the format of the recipe or of --type. Then the error of each choice that may still change
// is estimated on a sample, and a choice that loses too much is raised.
void choose_formats(WeightJobs& jobs, const QuantizeOptions& options, const std::string& file,
                    int threads);

// Weights that can be rounded with feedback, in the order of the file. Each expert is a
// weight of its own.
std::vector<Feedbacks::Expected> weights_with_feedback(const WeightJobs& jobs);

}  // namespace chaski
