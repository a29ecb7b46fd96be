// Makes a model smaller before it is run: every weight of a matmul gets the format `type`. Some
// tensors keep more bits, and the report says why:
//   norms and biases are f32;
//   the position table keeps its own format;
//   a weight whose columns are not a multiple of the block of `type` gets a stand-in
//   (engine/shelf/substitute_formats.h);
//   the head and the embedding get at least q6, or q8 if `type` is a GGUF format, unless a recipe
//   decides otherwise;
//   a weight whose relative squared error would be above `keep_above` gets the next better format
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
  int file_type = -1;                // GGUF's general.file_type; -1: the model has none
  Recipe recipe;                     // overrides all other rules for the tensors it names
  bool recipe_of_budget = false;     // a budget chose it, not a file: for the notes
  // Weights the errors, column by column; null: all count equally.
  const Calibration* calibration = nullptr;
  RoundingMethod method = RoundingMethod::best;  // how weights are rounded
  // Reads the calibration text a second time, for rounding with feedback. Null: there is no text,
  // so weights are rounded without feedback.
  Feedbacks* feedbacks = nullptr;
  // Whether to divide inputs if that loses less (engine/quantize/awq.h); needs a calibration.
  bool awq = false;
  // Columns whose inputs have a mean square above this multiple of the median are kept in 16 bits
  // (engine/quantize/outliers.h); needs a calibration. 0: none.
  double outliers = 0;
  // Whether to keep the finished tensors of an earlier run that was killed, and to leave those of
  // this run if it ends early.
  bool resume = false;
  std::function<void(const std::string& line)> notice;  // what an earlier run left; may be empty
};

// The default of keep_above: 0.02, and for formats of 2 and 3 bits four times their error on
// Gaussian rows. With 0.02 they would hardly ever be used.
double usual_keep_above(Format type);
double keep_above(const QuantizeOptions& options);

// The names of the formats that --type accepts, fewest bits first.
std::vector<std::string> quantize_types();

// Whether encoding to this format makes use of a calibration.
bool uses_inputs(Format format);

struct QuantizedTensor {
  std::string name;
  Format from, to;
  uint64_t bytes_before = 0, bytes_after = 0;
  double error = 0;    // sum (x - x')^2 / sum x^2, 0 when nothing was lost
  std::string reason;  // why `to` is not options.type; empty if it is
  // Whether errors were weighted by the calibration. If there is one that could not be used, or not
  // for some experts, not_weighed says why.
  bool weighed = false;
  std::string not_weighed;
  TensorEncoder::Outputs outputs;
  std::vector<int64_t> searched;  // TensorEncoder::searched()
  InputPower inputs;              // power 0: not divided
  size_t outliers = 0;            // number of columns in 16 bits
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;
  uint64_t bytes_before = 0, bytes_after = 0;
  uint64_t weights = 0;                // numbers that were encoded
  size_t kept = 0;                     // tensors that an earlier run finished
  std::vector<std::string> unmatched;  // tensors of the calibration that the model does not have
  double seconds = 0;
  double encode_seconds = 0;  // all threads together, without reading and writing
};

// Throws Error(usage) if `out` is one of the files that are read (empty names are skipped), and
// Error(io) if it cannot be written. quantize_model() checks its own files; a caller that works for
// minutes before that should check first.
void expect_output(const std::string& out, const std::vector<std::string>& read);
// Throws Error(usage) for the options and file names that quantize_model() refuses.
void expect_quantizable(const QuantizeOptions& options, const std::string& in,
                        const std::string& out);

// The most bytes that the file of quantize_model() would have in addition to its tensors: metadata
// such as the tokenizer, the table of tensors, and padding. It is the same for all formats.
uint64_t overhead_of(const ModelSource& source, const QuantizeOptions& options);

// The tensors that quantize_model() would write, with formats, bytes and reasons but without
// errors. Throws its errors, except those of writing, and does not verify the checksums of the
// source.
std::vector<QuantizedTensor> planned_tensors(const ModelSource& source, WeightJobs jobs,
                                             const std::string& out,
                                             const QuantizeOptions& options);

// Reads the model `in` and writes the file `out`, which is complete afterwards or unchanged: GGUF
// if it ends in .gguf (made from OUT.quipu, which is removed), else .quipu. Its bytes do not depend
// on the number of threads, nor on how often the work was interrupted and resumed. Throws
// Error(usage) for a type that cannot be encoded, for an `out` that is `in` or that was begun with
// other settings; Error(bad_file), with tensor and position, for a weight that is not finite and
// for a calibration of another shape; and what open_model() throws.
QuantizeReport quantize_model(const std::string& in, const std::string& out,
                              const QuantizeOptions& options, const OnProgress& progress);
// The same for a model that is open already, and its jobs_of(). The caller has called
// expect_quantizable().
QuantizeReport quantize_model(const ModelSource& source, WeightJobs jobs, const std::string& out,
                              const QuantizeOptions& options, const OnProgress& progress);

}  // namespace chaski
