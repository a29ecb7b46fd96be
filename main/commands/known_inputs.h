// What quantize knows about the inputs of a model's weights: measured on a text, read from a file
// of an earlier run, or both. A run that was killed while it measured can be continued.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "engine/quantize/feedback.h"
#include "engine/quantize/weight_job.h"
#include "engine/shelf/model_file.h"

namespace chaski {

struct CalibrationFlags {
  std::string in, out, tokenizer;  // of the model, as quantize takes them
  std::string text, stats;         // files; empty: not given
  int windows = 0;                 // to read, at most
  int threads = 0;
  bool resume = false;
  bool sensitivities = false;  // whether to measure how much each weight matters
  bool feedback = false;       // whether weights are rounded with feedback
};

// Empty without --calibrate and --stats.
struct KnownInputs {
  std::optional<Calibration> calibration;
  std::unique_ptr<Feedbacks> feedbacks;  // null without a text to read again
};

// With --calibrate, --stats names the file to save to; without, the file to read. While a budget is
// planned, and with --resume, unfinished measurements are saved every few seconds: to that file, or
// to one next to OUT. --resume continues them.
KnownInputs known_inputs(const CalibrationFlags& flags, const OpenModel& model,
                         const WeightJobs& jobs, const OnProgress& events);
// Throws Error(usage) if measurements would overwrite a file that --resume does not continue.
void expect_new_stats(const CalibrationFlags& flags);
// Removes the file next to OUT. Called when OUT is complete.
void drop_unfinished_measurements(const CalibrationFlags& flags);

}  // namespace chaski
