// Makes a model smaller, once and before it is run: every weight of a matmul gets the format
// `type`. A tensor keeps more bits than that where it would suffer, and the report says why:
//   norms and biases are f32
//   the position table keeps its own format
//   f16 where the columns are not a multiple of the block of `type`
//   at least q6 for the head and the embedding, or q8 where GGUF has `type`, unless a recipe says
//   otherwise
//   the next better format where the relative squared error would be more than `keep_above`
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/quantize/awq.h"
#include "engine/quantize/budget.h"
#include "engine/quantize/tensor_encoder.h"
#include "engine/shelf/substitute_formats.h"

namespace chaski {

struct QuantizeOptions {
  Format type = Format::q4;
  int threads = 0;
  std::string tokenizer;
  std::optional<double> keep_above;  // none: usual_keep_above(type)
  Recipe recipe;                     // has the last word on the tensors it names
  // What errors count, column by column; null: all the same.
  const Calibration* calibration = nullptr;
  // How weights are rounded. Feedback needs the text that the calibration was measured on; null:
  // there is none, and weights are searched for.
  RoundingMethod method = RoundingMethod::best;
  Feedbacks* feedbacks = nullptr;
  // Whether inputs are divided where that loses less (engine/quantize/awq.h); needs a calibration.
  bool awq = false;
  // Columns whose inputs have a mean square of more than so many times the median stand apart in 16
  // bits (engine/quantize/outliers.h); needs a calibration. 0: none.
  double outliers = 0;
  // Whether tensors that an earlier run finished, which was killed, are kept, and those that this
  // one finishes if it ends early.
  bool resume = false;
  std::function<void(const std::string& line)> notice;  // of what an earlier run left; may be empty
};

// 0.02, and more for formats of so few bits that they would hardly ever be kept: four times what
// they lose of Gaussian rows. Whoever asks for 2 bits shall have them, except where they break.
double usual_keep_above(Format type);
double keep_above(const QuantizeOptions& options);

// The names of the formats there are to choose from, fewest bits first.
std::vector<std::string> quantize_types();

// Whether weights of this format become others where it is known what comes in.
bool heeds_inputs(Format format);

struct QuantizedTensor {
  std::string name;
  Format from, to;
  uint64_t bytes_before = 0, bytes_after = 0;
  double error = 0;    // sum (x - x')^2 / sum x^2, 0 when nothing was lost
  std::string reason;  // why `to` is not options.type; empty if it is
  // Whether errors were weighed by the calibration; if not, although there is one and the format's
  // encoder could, why not, or of which experts not.
  bool weighed = false;
  std::string not_weighed;
  TensorEncoder::Outputs outputs;
  InputPower inputs;    // power 0: they are not divided
  size_t outliers = 0;  // columns that stand apart
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;
  uint64_t bytes_before = 0, bytes_after = 0;
  uint64_t weights = 0;                // numbers that were encoded anew
  size_t kept = 0;                     // tensors that an earlier run had finished
  std::vector<std::string> unmatched;  // tensors of the calibration that the model lacks
  double seconds = 0;
  double encode_seconds = 0;  // of all threads together, without reading and writing
};

// Throws Error(usage) for an `out` that is one of the files that are read (empty names are none),
// and Error(io) for one that cannot be written. quantize_model() asks it of its own files; whoever
// works for minutes before that asks first.
void expect_output(const std::string& out, const std::vector<std::string>& read);
// Whether an earlier run that wrote it was ended before its time, and left something.
bool is_unfinished(const std::string& out);
// What of the options and names quantize_model() refuses.
void expect_quantizable(const QuantizeOptions& options, const std::string& in,
                        const std::string& out);

// Reads the model `in` and writes the .quipu file `out`, which is whole afterwards or as it was
// before. Its bytes do not depend on the number of threads, nor on how often the work was
// interrupted and resumed. Throws Error(usage) for a type that
// cannot be encoded, for an `out` that is `in` and for one that was begun with something else,
// Error(bad_file) with tensor and position for a
// weight that is not finite and for a calibration of another shape, and what open_model() throws.
QuantizeReport quantize_model(const std::string& in, const std::string& out,
                              const QuantizeOptions& options, const OnProgress& progress);
// The same for a model that is open already. The caller has called expect_quantizable().
QuantizeReport quantize_model(const ModelSource& source, const std::string& out,
                              const QuantizeOptions& options, const OnProgress& progress);

}  // namespace chaski
