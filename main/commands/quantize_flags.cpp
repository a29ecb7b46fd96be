#include "main/commands/quantize_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <map>
#include <vector>

#include "engine/quantize/mixture.h"
#include "main/flags/options.h"
#include "main/flags/values.h"

namespace chaski {

namespace {

// The files to write do not exist yet, so only their paths show whether two are the same.
void expect_apart(const std::vector<std::string>& names) {
  std::map<std::filesystem::path, std::string> seen;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    std::error_code error;
    const auto whole = std::filesystem::absolute(name, error);
    const auto where = std::filesystem::weakly_canonical(whole, error);
    if (!error && !seen.emplace(where, name).second)
      fail(Exit::usage, "{} and {} are the same file, expected two files", escaped(seen[where]),
           escaped(name));
  }
}

}  // namespace

std::string QuantizeFlags::mixture() const {
  std::error_code ignored;
  if (base_of_mixture(recipe) && !std::filesystem::exists(recipe, ignored)) return recipe;
  return recipe.empty() && base_of_mixture(type) ? type : "";
}

CalibrationFlags calibration_flags(const QuantizeFlags& flags) {
  CalibrationFlags f;
  f.in = flags.in, f.out = flags.out, f.tokenizer = flags.options.tokenizer;
  f.text = flags.text, f.stats = flags.stats;
  f.windows = flags.windows > 0 ? flags.windows : std::numeric_limits<int>::max();
  f.threads = flags.options.threads, f.resume = flags.options.resume;
  f.sensitivities = flags.has_budget();
  f.feedback = flags.options.method != RoundingMethod::search;
  return f;
}

void check_flags(const QuantizeFlags& flags) {
  if (flags.windows_flag.given() && flags.text.empty())
    fail(Exit::usage, "--chunks is {}: it needs --calibrate TEXT", flags.windows);
  if (flags.options.method == RoundingMethod::gptq && flags.text.empty())
    fail(Exit::usage, "--method is {}: it needs --calibrate TEXT", flags.method);
  if (flags.options.awq && flags.text.empty() && flags.stats.empty())
    fail(Exit::usage, "--method is awq: it needs --calibrate TEXT or --stats FILE");
  if (flags.outliers_flag.given() && !(flags.options.outliers > 1))
    fail(Exit::usage, "--outliers is {}, expected more than 1", flags.options.outliers);
  if (flags.outliers_flag.given() && flags.text.empty() && flags.stats.empty())
    fail(Exit::usage, "--outliers needs --calibrate TEXT or --stats FILE");
  if (!flags.size.empty()) bytes_of("--size", flags.size);
  if (!flags.fits.empty()) bytes_of("--fits", flags.fits);
  if (flags.context_flag.given() && flags.fits.empty())
    fail(Exit::usage, "-c is {}: it needs --fits BYTES", flags.context);
  if (flags.bits_flag.given() && flags.bits <= 0)
    fail(Exit::usage, "--bpw is {}, expected more than 0", flags.bits);
  if (flags.kl_flag.given() && flags.kl <= 0)
    fail(Exit::usage, "--kl is {}, expected more than 0", flags.kl);
  if (!flags.recipe_out.empty() && !flags.has_budget())
    fail(Exit::usage, "--write-recipe needs a budget: --size, --fits, --bpw or --kl");
  if (flags.has_budget() && flags.text.empty() && flags.stats.empty())
    fail(Exit::usage,
         "--size, --fits, --bpw and --kl need --calibrate TEXT, or the --stats FILE of an earlier "
         "run with a budget");
  if (base_of_mixture(flags.type) && (flags.has_budget() || !flags.recipe.empty()))
    fail(Exit::usage, "--type is {}, a mixture, which is not possible with {}", flags.type,
         flags.recipe.empty() ? "a budget" : "--recipe");
  if (flags.type_flag.typed() && flags.has_budget())
    fail(Exit::usage,
         "the type {} is not possible with a budget, because the budget chooses the formats",
         flags.type);
  if (flags.out.ends_with(".gguf") && flags.has_budget())
    fail(Exit::usage,
         "{}: a budget chooses among chaski's own formats, expected a name that ends in .quipu",
         flags.out);
  expect_apart({flags.out, flags.recipe_out, flags.text.empty() ? "" : flags.stats});
  expect_output(flags.out, {flags.text, flags.stats, flags.recipe});
  expect_quantizable(flags.options, flags.in, flags.out);
  if (!flags.recipe_out.empty())
    expect_output(flags.recipe_out, {flags.in, flags.text, flags.stats, flags.out, flags.recipe});
  if (!flags.text.empty() && !flags.stats.empty())
    expect_output(flags.stats, {flags.in, flags.text, flags.out, flags.recipe_out});
  expect_new_stats(calibration_flags(flags));
}

void put_idle_calibration(const QuantizeFlags& flags) {
  if (uses_inputs(flags.options.type) || flags.options.awq || flags.options.outliers > 0 ||
      flags.has_budget() || !flags.recipe.empty())
    return;
  std::vector<std::string> names;
  if (!flags.text.empty()) names.emplace_back("--calibrate");
  if (flags.method != "auto") names.emplace_back("--method");
  if (flags.text.empty() && !flags.stats.empty()) names.emplace_back("--stats");
  put_no_effect(names, fmt::format("on weights: {} has one way to round them", flags.type));
}

}  // namespace chaski
