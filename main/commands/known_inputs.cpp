#include "main/commands/known_inputs.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "engine/quantize/sensitivity.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"

namespace chaski {

namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored);
}

// The file next to OUT, for a run without --stats.
std::string unfinished_file(const CalibrationFlags& flags) {
  const std::filesystem::path out = flags.out;
  return (out.parent_path() / fmt::format(".{}.stats", out.filename().string())).string();
}
std::string file_of(const CalibrationFlags& flags) {
  return flags.stats.empty() ? unfinished_file(flags) : flags.stats;
}

// Reads measurements. A file that is cut short is reported with what to do about it.
Calibration measurements_in(const std::string& path, bool resumes) {
  const auto with_advice = [&](const std::string& line) {
    return Error(Exit::bad_file,
                 line + (resumes ? ": remove the file, and the same command measures again"
                                 : ": --calibrate TEXT measures again"));
  };
  try {
    return load_calibration(path);
  } catch (const CutShort& error) {
    throw with_advice(error.without_advice());
  } catch (const Error& error) {
    const std::string line = error.what();
    const bool part = line.find("cut short") != line.npos || line.ends_with("is empty");
    if (error.code == Exit::bad_file && part) throw with_advice(line);
    throw;
  }
}

// Saves unfinished measurements: the first at once, then one every kEvery.
class Keeper {
 public:
  explicit Keeper(const CalibrationFlags& flags) : flags_(flags) {}

  OnMeasured callback() {
    if (!flags_.sensitivities && !flags_.resume) return {};
    return [this](const Calibration& calibration) {
      if (last_ && Clock::now() - *last_ < kEvery) return;
      save(calibration);
      last_ = Clock::now();
    };
  }
  void save(const Calibration& calibration) const {
    save_calibration(file_of(flags_), calibration, flags_.in);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kEvery = std::chrono::seconds(2);
  const CalibrationFlags& flags_;
  std::optional<Clock::time_point> last_;
};

// With --resume: what an earlier run measured, as far as it came. Throws Error(usage) for
// measurements of another model or text.
Calibration measured_before(const CalibrationFlags& flags, const CalibrationText& text) {
  const std::string path = file_of(flags);
  if (!flags.resume || !is_there(path)) return {};
  Calibration saved = measurements_in(path, true);
  const auto expect = [&](bool same, const std::string& other) {
    if (!same)
      fail(Exit::usage,
           "{}: the measurements are of {}, expected those of an earlier run of the same command: "
           "remove the file, or name another one with --stats",
           path, other);
  };
  expect(saved.model == model_hash(text), "another model");
  expect(saved.hash == text.hash, "another text (" + escaped(saved.text) + ")");
  const int64_t all = int64_t(text.windows) * window_of(*text.engine);
  expect(saved.tokens <= all && (saved.tokens == all || saved.kl.empty()),
         fmt::format("{} tokens, not {}", saved.tokens, all));
  put_notice(fmt::format("{}: measurements of an earlier run are continued: {} of {} tokens{}",
                         path, saved.tokens, all,
                         saved.kl.empty() ? "" : fmt::format(", {} weights", saved.kl.size())));
  return saved;
}

Calibration measured(const CalibrationFlags& flags, const CalibrationText& text,
                     const WeightJobs& jobs, const OnProgress& events) {
  Calibration before = measured_before(flags, text);
  const uint64_t tokens = uint64_t(text.windows) * uint64_t(window_of(*text.engine)),
                 work = tokens + (flags.sensitivities ? sensitivity_work(text, jobs) : 0);
  const bool finished = before.tokens == int64_t(tokens);
  const size_t kept = before.kl.size();
  std::optional<ProgressBar> bar;
  const auto show = [&](const FileProgress& progress) {
    if (events) return events(progress);
    if (!bar) bar.emplace(ProgressScale{double(progress.total), "tokens"});
    bar->show(progress);
  };
  Keeper keeper(flags);
  Calibration calibration = finished ? std::move(before)
                                     : calibrate(
                                           text,
                                           [&](const FileProgress& p) {
                                             show({p.tensor, p.done, work});
                                           },
                                           std::move(before), keeper.callback());
  if (flags.sensitivities)
    measure_sensitivity(
        text, jobs, calibration, flags.threads,
        [&](const FileProgress& p) {
          show({p.tensor, tokens + p.done, work});
        },
        keeper.callback());
  const bool wanted = !flags.stats.empty() || keeper.callback();
  if (wanted && !(finished && calibration.kl.size() == kept)) keeper.save(calibration);
  return calibration;
}

}  // namespace

void expect_new_stats(const CalibrationFlags& flags) {
  if (!flags.text.empty() && is_there(flags.stats) && !flags.resume)
    fail(Exit::usage,
         "{} exists already: name another file, leave out --calibrate to read it, or add --resume "
         "to continue it",
         escaped(flags.stats));
}

KnownInputs known_inputs(const CalibrationFlags& flags, const OpenModel& model,
                         const WeightJobs& jobs, const OnProgress& events) {
  KnownInputs known;
  if (flags.text.empty()) {
    if (!flags.stats.empty()) known.calibration = measurements_in(flags.stats, false);
    return known;
  }
  CalibrationText text =
      calibration_text(model, {flags.in, flags.tokenizer, flags.windows, flags.threads}, flags.text,
                       read_text(flags.text));
  known.calibration = measured(flags, text, jobs, events);
  if (flags.feedback) known.feedbacks = std::make_unique<Feedbacks>(std::move(text), flags.threads);
  return known;
}

void drop_unfinished_measurements(const CalibrationFlags& flags) {
  std::error_code ignored;
  if (!flags.text.empty() && flags.stats.empty())
    std::filesystem::remove(unfinished_file(flags), ignored);
}

}  // namespace chaski
