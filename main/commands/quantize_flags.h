// The flags of chaski quantize, and the checks before any work is done.
#pragma once
#include <string>

#include "engine/quantize/quantize.h"
#include "main/commands/known_inputs.h"
#include "main/flags/flags.h"
#include "main/terminal/json_output.h"

namespace chaski {

struct QuantizeFlags {
  std::string in, out, type = "q4";
  std::string text, stats;  // of the calibration; empty: none
  std::string method = "auto";
  bool fast = false;
  std::string size, fits;  // as typed; empty: not given
  int context = 0;         // for `fits`
  Flag context_flag;
  double bits = 0, kl = 0;
  Flag bits_flag, kl_flag;
  std::string recipe, recipe_out;  // files
  bool dry_run = false;
  double keep_above = 0;
  Flag keep_above_flag, outliers_flag;

  Flag type_flag;
  // The mixture that --type or --recipe names; empty: none. A file of that name is a recipe.
  std::string mixture() const;
  bool has_budget() const {
    return !size.empty() || !fits.empty() || bits_flag.given() || kl_flag.given();
  }
  int windows = 256;  // 0: the whole text
  Flag windows_flag;
  QuantizeOptions options;
  JsonForm json;
};

CalibrationFlags calibration_flags(const QuantizeFlags& flags);
// Refuses flags that do not go together, files that would overwrite an input, and files that cannot
// be written.
void check_flags(const QuantizeFlags& flags);
// Says so if a calibration has no effect, because reading the text may take minutes.
void put_idle_calibration(const QuantizeFlags& flags);

}  // namespace chaski
