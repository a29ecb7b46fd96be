// Multiplies columns of a weight by scales, and divides their inputs by the same scales. The model
// computes the same, but columns with large inputs are rounded more finely (AWQ, Lin et al. 2023).
// If inputs are rounded too, the large ones no longer coarsen their neighbours (SmoothQuant, Xiao
// et al. 2023). The division is folded into the tensor that makes the inputs, the weight of a norm
// or the rows of a matmul, so it costs no time.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/quantize/calibration.h"

namespace chaski {

struct WeightJob;

// Weights that read the same values (readers), and the tensors that make these values (makers).
struct Fold {
  std::vector<std::string> readers;
  std::vector<std::string> makers;  // weight and bias of a norm or a matmul
  // For each column of the readers: the row of the makers, or the element of a vector, that makes
  // it. Several columns may come from one row, for example if query heads share values.
  std::vector<int64_t> row_of;
  int64_t rows = 0;
};

// All pairs of readers and makers in the model's graph for which a division in the makers is undone
// exactly by a multiplication in the readers: norm to matmuls, values to attention's output, the
// linear half of a gated feed-forward block to its last matmul. Throws what bind_model() throws.
std::vector<Fold> folds_of(const ModelSource& in);

// The scales of one tensor; an empty list means ones.
struct TensorScales {
  std::vector<float> columns;  // the columns are multiplied by these
  std::vector<float> rows;     // the rows, or a vector's elements, are divided by these
};
using Scales = std::map<std::string, TensorScales>;  // by tensor

// Adds a fold's scales to those of its tensors. by_row: (fold.rows), each above 0.
void apply(const Fold& fold, const std::vector<float>& by_row, Scales& scales);
// The scaled tensor, in f32.
TensorSource scaled(const TensorSource& tensor, const TensorScales& by);
InputSquares scaled(const InputSquares& inputs, const std::vector<float>& columns);

// The result for a weight whose inputs are divided by the root of their mean squares to a power:
// the relative squared error of its outputs with that division and without it. The errors are
// predicted from the mean squares of the inputs. They include the rounding of inputs to 8 bits.
struct InputPower {
  double power = 0, lost = 0, lost_without = 0;
};

// Takes each fold of `in` whose weights are all converted, and searches for the power 0, .1, ...
// .9 that loses least in a few strips of the fold's readers. Where it is above 0, the scales go
// into the jobs and are applied to their sources and inputs. The numbers do not depend on threads.
void scale_inputs(const ModelSource& in, std::vector<WeightJob>& jobs, int threads);

}  // namespace chaski
