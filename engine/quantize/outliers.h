// Outliers: columns of a weight whose inputs are so large that they are kept in 16 bits, while the
// other columns get few bits (LLM.int8, Dettmers et al. 2022). The weights of these columns are not
// rounded to few bits, and their inputs do not coarsen the 8-bit codes of neighbouring inputs
// (ops/set_aside.h).
#pragma once
#include <set>
#include <string>
#include <vector>

#include "engine/quantize/calibration.h"

namespace chaski {

struct WeightJob;

// A weight has at most one outlier in 16 columns.
constexpr int64_t kOutlierShare = 16;

// The columns, in ascending order, whose mean square is more than `above` times the median of all
// columns. If there are too many, the largest are taken. Not for inputs of several experts.
std::vector<int64_t> outliers_of(const InputSquares& inputs, double above);

// The names of the weights whose columns the model's graph can set aside. Throws what bind_model()
// throws.
std::set<std::string> can_set_aside(const ModelSource& in);
// Sets aside the outliers of each weight that is converted to blocks: the job's source gets
// zeros there, and its inputs too. Throws Error(usage) for a model that has outliers already.
void set_outliers_aside(const ModelSource& in, std::vector<WeightJob>& jobs, double above);
// Appends the two tensors of each weight that has outliers, scaled as the weight is.
void add_outlier_jobs(std::vector<WeightJob>& jobs);

// In f32: the weight with zeros in these columns; these columns only; the numbers of these columns.
// The last two have the names that the model expects.
TensorSource without_columns(const TensorSource& weight, const std::vector<int64_t>& columns);
TensorSource columns_alone(const TensorSource& weight, const std::vector<int64_t>& columns);
TensorSource column_numbers(const TensorInfo& weight, const std::vector<int64_t>& columns);
// The inputs with zeros in these columns.
InputSquares without_columns(const InputSquares& inputs, const std::vector<int64_t>& columns);

}  // namespace chaski
