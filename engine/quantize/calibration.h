// What the inputs of a model's matmuls are like, measured on a text: the mean square of each
// column. An error in a weight of that column moves the outputs by so much, so an encoder that
// searches counts it by that (quant/encode/encode.h). The head is not measured: it keeps more
// bits, and its logits would cost a part of every pass.
//
// Kept in the GGUF files that llama.cpp's llama-imatrix writes, so that either program reads the
// other's: "<tensor>.in_sum2", (experts, columns), and "<tensor>.counts", (experts). What other
// programs pass over: "<tensor>.kl", (1). Its older files, imatrix.dat, are read.
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

namespace chaski {

class Plan;
struct OpArgs;

constexpr int kCalibrationWindow = 512;  // tokens that are read as one text, or the model's context
constexpr int64_t kFewestTokens = 32;    // of which a mean square is believed

// Of one weight. Those of several experts stand one below the other, and have inputs of their own.
struct InputSquares {
  int64_t cols = 0;
  std::vector<float> sums;      // (experts, cols): of squares, over all tokens
  std::vector<int64_t> tokens;  // (experts): that were seen

  int64_t experts() const { return int64_t(tokens.size()); }
  // Whether they are of a weight of this shape.
  bool fit(const TensorInfo& weight) const;
  // By expert, (cols): mean squares with a mean of 1, none below a ten-thousandth, so that a column
  // that was silent in this text is not lost. Empty of an expert that saw too few tokens.
  std::vector<std::vector<float>> factors() const;
  std::vector<int64_t> too_few() const;  // experts whose factors are empty
};

struct Calibration {
  // Name and XXH3-64 of the text; those of the file itself where one of llama.cpp does not say.
  std::string text, hash;
  int64_t tokens = 0;  // that were read of the text; 0: not known
  // By name as GGUF files have it, in our spelling: "layer.3.attn_q".
  std::map<std::string, InputSquares> inputs;
  // The divergence of the model where this weight alone has 4 bits (engine/quantize/budget.h), by
  // the same names; empty: not measured.
  std::map<std::string, double> kl = {};
};

int window_of(const Engine& engine);  // tokens: kCalibrationWindow or its context

// Reads the first `windows` windows of window_of() tokens, each for itself. `look` is told of each
// step as Executor::after_step is, `on_read` how many windows were read. The engine runs on the CPU
// alone, with that much context. With `part`, by these layers alone; its rows are given window by
// window.
struct LayersRead {
  int first, last;                        // as in CpuPasses::Part
  std::vector<std::vector<float>>* rows;  // by window
  bool stay = false;                      // the rows
};
void read_for_inputs(Engine& engine, std::span<const TokenId> tokens, int windows,
                     const std::function<void(const Plan&, size_t step)>& look,
                     const std::function<void(int)>& on_read,
                     const std::optional<LayersRead>& part = {});
// Row t of what came into a matmul.
void input_row(const OpArgs& matmul, int64_t t, float* to);
// The weights that a step multiplies by its rows, all of them the same; none of one that does not.
std::vector<const Weight*> weights_of(const Plan& plan, size_t step);

// What comes into each weight of a matmul there, by the weight's name.
std::map<std::string, InputSquares> measure_inputs(Engine& engine, std::span<const TokenId> tokens,
                                                   int windows,
                                                   const std::function<void(int)>& on_read);

struct CalibrationOptions {
  std::string model, tokenizer;  // as open_model() takes them
  int windows = 256;             // at most; a shorter text has fewer
  int threads = 0;
};

// A model on the CPU, and the text that it is to read.
struct CalibrationText {
  std::string name, hash;  // as in Calibration
  std::shared_ptr<Engine> engine;
  std::vector<TokenId> tokens;
  int windows = 0;  // of window_of() tokens, that are read
};
// `name` is the text's file. Throws what Engine::open throws, and Error(usage) for a text shorter
// than a window.
CalibrationText calibration_text(const CalibrationOptions& options, const std::string& name,
                                 std::string_view text);
// The same for a model that open_model() has opened as options.model.
CalibrationText calibration_text(const OpenModel& model, const CalibrationOptions& options,
                                 const std::string& name, std::string_view text);

// Runs the model over the beginning of the text. The numbers do not depend on threads. Throws
// Error(non_finite).
Calibration calibrate(const CalibrationText& text, const OnProgress& progress);

// Throws Error(io), and Error(usage) for a path that is the model's.
void save_calibration(const std::string& path, const Calibration& calibration,
                      const std::string& model);
// Throws Error(bad_file | io).
Calibration load_calibration(const std::string& path);

}  // namespace chaski
