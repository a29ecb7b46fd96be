// Statistics of the inputs of a model's matmuls on a text: the mean square of each column. An
// encoder that searches weights each column's squared error by the column's mean squared input
// (quant/encode/encode.h), because that is how much the error moves the outputs. The head is not
// measured: it keeps more bits, and its logits would cost time in every pass.
//
// The file is a GGUF file as llama.cpp's llama-imatrix writes it, so each program reads the
// other's:
// "<tensor>.in_sum2", (experts, columns), and "<tensor>.counts", (experts). chaski adds
// "<tensor>.kl", (1), which other programs ignore. It also reads the older files, imatrix.dat.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session/engine.h"
#include "engine/shelf/model_file.h"
#include "ggml-like-tensor/ops/expert_matmul.h"

namespace chaski {

class Plan;

constexpr int kCalibrationWindow = 512;  // tokens of a window, at most the model's context
constexpr int64_t kFewestTokens = 32;    // a mean square of fewer tokens is not used

// The inputs of one weight. The rows of a weight with several experts are stacked; each expert has
// its own inputs.
struct InputSquares {
  int64_t cols = 0;
  std::vector<float> sums;      // (experts, cols): sums of squares over all tokens
  std::vector<int64_t> tokens;  // (experts): tokens seen

  int64_t experts() const { return int64_t(tokens.size()); }
  // Whether these numbers fit a weight of this shape.
  bool fit(const TensorInfo& weight) const;
  // By expert, (cols): mean squares with a mean of 1. None is below 1e-4, so that a column without
  // input in this text still counts. Empty for an expert that saw too few tokens.
  std::vector<std::vector<float>> factors() const;
  std::vector<int64_t> too_few() const;  // experts whose factors are empty
};

struct Calibration {
  // Name and XXH3-64 of the text; for a file of llama.cpp without them, those of the file itself.
  std::string text, hash;
  int64_t tokens = 0;  // read from the text; 0: unknown
  // By the tensor's GGUF name, in our spelling: "layer.3.attn_q".
  std::map<std::string, InputSquares> inputs;
  // The divergence of the model if only this weight has 4 bits (engine/quantize/budget.h), by the
  // same names; empty: not measured.
  std::map<std::string, double> kl = {};
  // model_hash() of the model that was measured; empty: unknown.
  std::string model = {};
};

int window_of(const Engine& engine);  // tokens: kCalibrationWindow, at most the context

// Reads the first `windows` windows of window_of() tokens, each separately. `look` is called after
// each step, like Executor::after_step; `on_read` with the number of windows read. The engine must
// run on the CPU only. With `part`, only these layers run; the rows of each window are their input.
struct LayersRead {
  int first, last;                        // as in CpuStage::Part
  std::vector<std::vector<float>>* rows;  // by window
  bool stay = false;                      // whether the rows are kept
  // If the last of these layers is the model's: receives the logits of the last `outputs` tokens
  // of each window.
  int outputs = 0;
  std::function<void(int window, std::span<const float> logits)> on_logits = {};
};
void read_for_inputs(Engine& engine, std::span<const TokenId> tokens, int windows,
                     const std::function<void(const Plan&, size_t step)>& look,
                     const std::function<void(int)>& on_read,
                     const std::optional<LayersRead>& part = {});
// Row t of the input of a matmul.
void input_row(const OpArgs& matmul, int64_t t, float* to);
// The weights that a step multiplies by the same rows; none if it is no such step.
std::vector<const Weight*> weights_of(const Plan& plan, size_t step);

// A step that multiplies by the experts of its rows, as an expert_matmul of all its weights.
struct ExpertStep {
  ExpertMatMul op;
  OpArgs args;
  std::vector<const Weight*> weights;
};
std::optional<ExpertStep> experts_of(const Plan& plan, size_t step);

// The inputs of each matmul weight in these windows, by the weight's name.
std::map<std::string, InputSquares> measure_inputs(Engine& engine, std::span<const TokenId> tokens,
                                                   int windows,
                                                   const std::function<void(int)>& on_read);

struct CalibrationOptions {
  std::string model, tokenizer;  // as open_model() takes them
  int windows = 256;             // at most
  int threads = 0;
};

// A model on the CPU, and the text to read.
struct CalibrationText {
  std::string name, hash;  // as in Calibration
  std::shared_ptr<Engine> engine;
  std::vector<TokenId> tokens;
  int windows = 0;  // windows of window_of() tokens to read
};
// `name` is the text's file. Throws what Engine::open throws, and Error(usage) if the text is
// shorter than a window.
CalibrationText calibration_text(const CalibrationOptions& options, const std::string& name,
                                 std::string_view text);
// The same for a model that open_model() has opened as options.model.
CalibrationText calibration_text(const OpenModel& model, const CalibrationOptions& options,
                                 const std::string& name, std::string_view text);

// Identifies the model: a checksum of names, shapes, formats and samples of all tensors.
std::string model_hash(const CalibrationText& text);

// Receives a calibration that is not finished. save_calibration() can keep it for a later run.
using OnMeasured = std::function<void(const Calibration&)>;

// Measures the inputs of all matmuls on the text. The numbers do not depend on threads, nor on
// where an earlier run stopped: `before` is its calibration, of this model and text, whose tokens
// are not read again. Throws Error(non_finite).
Calibration calibrate(const CalibrationText& text, const OnProgress& progress,
                      Calibration before = {}, const OnMeasured& keep = {});

// Throws Error(io), and Error(usage) if the path is the model's.
void save_calibration(const std::string& path, const Calibration& calibration,
                      const std::string& model);
// Throws Error(bad_file | io).
Calibration load_calibration(const std::string& path);

}  // namespace chaski
