// Columns of a weight times some numbers, and what comes into them divided by the same: the model
// computes what it did, but columns with large inputs are rounded more finely (AWQ, Lin et al.
// 2023), and where inputs are rounded too, the large ones no longer coarsen those beside them
// (SmoothQuant, Xiao et al. 2023). The division goes into what stands in front, the weight of a
// norm or the rows of a matmul, so it costs nothing.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/quantize/calibration.h"

namespace chaski {

struct WeightJob;

// Weights that read the same values, and what makes these.
struct Fold {
  std::vector<std::string> readers;
  std::vector<std::string> makers;  // weight, and bias, of a norm or a matmul
  // By column of the readers: the makers' row, or element, that it comes from. Several columns may
  // come from one row, as where query heads share values.
  std::vector<int64_t> row_of;
  int64_t rows = 0;
};

// Every place in the model's graph where dividing here is exactly undone by multiplying there: norm
// to matmuls, values to attention's output, the linear half of a gated feed-forward to its last
// matmul. Throws what bind_model() throws.
std::vector<Fold> folds_of(const ModelSource& in);

// Of one tensor; what is empty is all ones.
struct TensorScales {
  std::vector<float> columns;  // that its columns are multiplied by
  std::vector<float> rows;     // that its rows, of a vector its elements, are divided by
};
using Scales = std::map<std::string, TensorScales>;  // by tensor

// by_row: (fold.rows), each above 0.
void apply(const Fold& fold, const std::vector<float>& by_row, Scales& scales);
// In f32.
TensorSource scaled(const TensorSource& tensor, const TensorScales& by);
InputSquares scaled(const InputSquares& inputs, const std::vector<float>& columns);

// What became of a weight whose inputs are divided: by the root of their mean squares to this
// power. What its outputs lose with that and without, as mean squares of the inputs foretell it, of
// weights and of inputs that are rounded to 8 bits.
struct InputPower {
  double power = 0, lost = 0, lost_without = 0;
};

// Takes each fold of `in` whose weights are all encoded anew, and searches for the power 0, .1, ...
// .9 that loses least in a few strips of the fold's readers. Where it is above 0, the scales go
// into the jobs and are applied to their sources and inputs. The numbers do not depend on threads.
void scale_inputs(const ModelSource& in, std::vector<WeightJob>& jobs, int threads);

}  // namespace chaski
