// Measures how much each weight matters: the KL divergence of the model from itself if this weight
// alone has 4 bits.
//
// The layers before a weight compute the same as without the change. So each weight is measured
// from the input of its own layer on, which is kept for one layer at a time: half a pass a weight
// on average. Weights are exchanged in place, in one engine.
#pragma once
#include "engine/quantize/calibration.h"
#include "engine/quantize/weight_job.h"

namespace chaski {

// The format of the changed weight.
constexpr Format kProbe = Format::q4;

// Weights whose formats a recipe may choose, as numbers of jobs.
std::vector<size_t> candidates(const WeightJobs& jobs);

// The inputs of a weight; null: unknown.
const InputSquares* inputs_of(const Calibration& calibration, const WeightJob& job);

// What is read for each weight: pieces of the text, one after the other. In each, the last `scored`
// tokens are compared.
struct TextPieces {
  std::vector<TokenId> tokens;
  int count, length, scored;
};
TextPieces text_pieces(const CalibrationText& text);

// Fills calibration.kl for every weight that a recipe may encode and that it does not have yet.
// The jobs are those of the text's model. Calls `keep` after each weight. The numbers do not depend
// on threads, nor on where an earlier run stopped. Throws what Engine::over throws.
void measure_sensitivity(const CalibrationText& text, const WeightJobs& jobs,
                         Calibration& calibration, int threads, const OnProgress& progress,
                         const OnMeasured& keep = {});
// The `total` that it reports. It takes about as long as reading so many tokens of the text.
uint64_t sensitivity_work(const CalibrationText& text, const WeightJobs& jobs);

// By layer: whether reading can begin there (ggml-like-tensor/split.h).
std::vector<bool> cuts_of(const Model& model);

}  // namespace chaski
