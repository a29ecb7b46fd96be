#include "main/commands/quantize_interrupt.h"

#include <fmt/format.h>

#include <filesystem>

#include "main/terminal/last_words.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

// The file with measurements, if there are any: that of --stats, or one next to OUT.
std::string measurements(const QuantizeInterrupt& q) {
  if (!q.calibrates || !q.stats.empty()) return q.calibrates ? q.stats : "";
  const std::filesystem::path out = q.out;
  return (out.parent_path() / ("." + out.filename().string() + ".stats")).string();
}

void say(const PartingLine& line) {
  if (!is_quiet()) set_parting_line(line);
}

}  // namespace

void QuantizeInterrupt::is_measuring() const {
  if (!calibrates) return;
  const std::string file = measurements(*this);
  say({file,
       fmt::format("interrupted while --calibrate measured: its measurements so far are kept in "
                   "{}, and the same command with --resume continues there",
                   file),
       "interrupted while --calibrate measured: nothing is kept"});
}

void QuantizeInterrupt::is_encoding() const {
  if (resumes) {
    const std::string kept = fmt::format(
        "interrupted: finished tensors are kept in a hidden file next to {}, and the same command "
        "continues with them",
        out);
    return say({"", kept, kept});
  }
  const std::string file = measurements(*this);
  say({file,
       fmt::format("interrupted: no tensor is kept, but the measurements are, in {}: the same "
                   "command with --resume continues with them, and keeps finished tensors",
                   file),
       "interrupted: no tensor is kept; with --resume, finished tensors are kept, and the same "
       "command continues with them"});
}

QuantizeInterrupt::~QuantizeInterrupt() { set_parting_line({}); }

}  // namespace chaski
