// Which format each weight gets: the recipe's, or the one of --type unless the weight would suffer.
#include <fmt/format.h>

#include <algorithm>

#include "engine/quantize/quantize.h"
#include "engine/quantize/weight_job.h"
#include "ggml-like-tensor/base/error.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

// `wanted` has more bits than the user asked for. If the tensor's own format has no more bits than
// that, the tensor keeps it.
FormatChoice no_more_than_own(const TensorInfo& in, Format wanted, const std::string& reason) {
  if (info(wanted).bits() < info(in.format).bits()) return {wanted, reason, false};
  return {in.format, reason, true};
}

FormatChoice first_choice(const TensorInfo& in, Role role, Format type) {
  if (!in.tiled())
    return {Format::f32, type == Format::f32 ? "" : "norms and biases keep f32", true};
  if (in.format == type) return {type, "", true};
  if (role == Role::position_table)
    return {in.format, "the position table keeps its own format", true};
  if (role == Role::outliers) return {in.format, "outlier columns keep their own format", true};
  if (role == Role::router) return {in.format, "the router keeps its own format", true};
  const Format least = least_of_head(type, in.cols);
  const bool decides_every_token = role == Role::head || role == Role::token_table;
  const bool raise = decides_every_token && info(type).bits() < info(least).bits();
  const Format wanted = raise ? least : type;
  if (in.cols % info(wanted).block != 0)
    return no_more_than_own(
        in, stand_in(wanted, in.cols),
        fmt::format("{} columns are not a multiple of {}", in.cols, info(wanted).block));
  if (raise)
    return no_more_than_own(in, wanted,
                            fmt::format("head and embedding keep at least {}", info(least).name));
  return {wanted, "", false};
}

FormatChoice choice_of_recipe(const TensorInfo& in, Format to, const QuantizeOptions& options,
                              const std::string& file) {
  if (to != in.format && (!can_encode(to) || in.cols % info(to).block != 0))
    fail(Exit::usage,
         "{}: the recipe has {} for tensor {} with {} columns, expected a type of --type whose "
         "block size divides the columns",
         file, info(to).name, escaped(in.name), in.cols);
  return {to,
          to == options.type         ? ""
          : to == in.format          ? "has no more bits than the recipe asks for"
          : options.recipe_of_budget ? "as the budget chose"
                                     : "as the recipe has it",
          true};
}

FormatChoice raised(const TensorInfo& in, Format from, double error) {
  const Format better = from == Format::q2 || from == Format::q3       ? Format::q4
                        : from == Format::q2_k || from == Format::q3_k ? Format::q4_k
                        : info(from).bits() < info(Format::q8).bits()  ? Format::q8
                        : info(from).bits() < 16                       ? Format::f16
                                                                       : Format::f32;
  return no_more_than_own(in, better, fmt::format("{} would lose {:.2g}", info(from).name, error));
}

// How many strips of a tensor are encoded to estimate its error, at most; they are evenly spread.
// To search all of a weight twice would double the time, and a tensor that suffers does so in more
// than a few rows. Encoders without a search are so fast that the sample would be a quarter of the
// work, so it is smaller.
constexpr int64_t kSample = 16, kFastSample = 4;

// A tensor made of the sampled strips only, encoded.
TensorSource sample_of(TensorEncoder& encoder, int64_t most) {
  const TensorInfo& in = encoder.from();
  const int64_t all = strips_of(in), n = std::min(most, all);
  const size_t stride = strip_bytes(encoder.to(), in.cols);
  const TensorInfo small{in.name, encoder.to(), n * kStrip, in.cols};
  return {small, [&encoder, all, n, stride](int64_t first, int64_t last, std::byte* dst) {
            for (int64_t i = first; i < last; ++i, dst += stride) encoder.encode(i * all / n, dst);
          }};
}

// The error that each unsettled choice would make; 0 for the others. Uses the threads that load a
// model.
std::vector<double> estimated_errors(const WeightJobs& jobs, RoundingMethod method,
                                     const std::string& file, int threads) {
  std::vector<std::unique_ptr<TensorEncoder>> encoders(jobs.size());
  ModelSource samples{file, "samples", {}, {}, {}};
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].choice.settled) continue;
    encoders[i] = std::make_unique<TensorEncoder>(
        jobs[i].source, jobs[i].choice.to, file, Rounding{jobs[i].known_inputs(), nullptr, method});
    samples.tensors.push_back(
        sample_of(*encoders[i], method == RoundingMethod::fast ? kFastSample : kSample));
  }
  load(samples, threads);
  std::vector<double> errors;
  for (const auto& encoder : encoders) errors.push_back(encoder ? encoder->error() : 0);
  return errors;
}

}  // namespace

double keep_above(const QuantizeOptions& options) {
  return options.keep_above.value_or(usual_keep_above(options.type));
}

void choose_formats(WeightJobs& jobs, const QuantizeOptions& options, const std::string& file,
                    int threads) {
  for (WeightJob& job : jobs) {
    const auto given = options.recipe.find(job.from().name);
    job.choice = given != options.recipe.end()
                     ? choice_of_recipe(job.from(), given->second, options, file)
                     : first_choice(job.from(), job.slot.role, options.type);
  }
  const RoundingMethod method =
      options.method == RoundingMethod::fast ? RoundingMethod::fast : RoundingMethod::search;
  const auto unsettled = [](const WeightJob& job) { return !job.choice.settled; };
  while (std::ranges::any_of(jobs, unsettled)) {
    const std::vector<double> errors = estimated_errors(jobs, method, file, threads);
    for (size_t i = 0; i < jobs.size(); ++i) {
      FormatChoice& choice = jobs[i].choice;
      if (choice.settled) continue;
      if (errors[i] <= keep_above(options))  // also false for NaN: out of range
        choice.settled = true;
      else
        choice = raised(jobs[i].from(), choice.to, errors[i]);
    }
  }
}

}  // namespace chaski
