// Columns of a weight whose inputs are so large that they are better kept in 16 bits, beside a
// matmul of few bits (LLM.int8, Dettmers et al. 2022): neither their weights are rounded, nor do
// they coarsen the 8-bit codes of the inputs beside them (ops/set_aside.h).
#pragma once
#include <set>
#include <string>
#include <vector>

#include "engine/quantize/calibration.h"

namespace chaski {

struct WeightJob;

// Of every weight at most one column in so many.
constexpr int64_t kOutlierShare = 16;

// Columns, in order, whose mean square is more than `above` times the median of all columns'; of
// more than may be, those with the largest. Of one set of inputs, not of experts.
std::vector<int64_t> outliers_of(const InputSquares& inputs, double above);

// The weights that the model's graph multiplies in such a way that columns can be set aside. Throws
// what bind_model() throws.
std::set<std::string> can_set_aside(const ModelSource& in);
// Sets aside the outliers of each weight that is encoded anew in blocks: the job's source gets
// zeros there, and its inputs too. Throws Error(usage) for a model that has outliers already.
void set_outliers_aside(const ModelSource& in, std::vector<WeightJob>& jobs, double above);
// Appends the two tensors of each weight that has outliers, scaled as the weight is.
void add_outlier_jobs(std::vector<WeightJob>& jobs);

// In f32: a weight with zeros in these columns; these columns alone; their numbers. The last two
// have the names by which the model asks for them.
TensorSource without_columns(const TensorSource& weight, const std::vector<int64_t>& columns);
TensorSource columns_alone(const TensorSource& weight, const std::vector<int64_t>& columns);
TensorSource column_numbers(const TensorInfo& weight, const std::vector<int64_t>& columns);
// As if nothing came in there.
InputSquares without_columns(const InputSquares& inputs, const std::vector<int64_t>& columns);

}  // namespace chaski
