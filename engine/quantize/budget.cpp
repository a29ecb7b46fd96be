#include "engine/quantize/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/passes/layer_of.h"
#include "engine/quantize/quantize.h"
#include "engine/quantize/sensitivity.h"
#include "engine/quantize/tensor_encoder.h"
#include "engine/quantize/weight_job.h"
#include "engine/text/tokenizer/pattern.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/file/chunks.h"

namespace chaski {

// A format that a tensor may get, its size, and the divergence that it causes.
struct FormatCosts::Option {
  Format to;
  uint64_t bytes;
  double kl;
};

// The options of a tensor whose format is chosen, on their lower convex hull.
struct FormatCosts::Hull {
  size_t tensor;
  std::vector<Option> options;
};

namespace {

// The formats to choose from, fewest bits first; of those with equal bits the first is the best. q4
// is in the list because it is the probe, and because some weights lose less in it than in q4t.
constexpr std::array kLadder = {Format::q2, Format::q3, Format::q4t, Format::q4, Format::q4h,
                                Format::q5, Format::q6, Format::q8,  Format::f16};

using Option = FormatCosts::Option;
using Hull = FormatCosts::Hull;

// The lower convex hull of the options, by bytes and divergence.
std::vector<Option> hull_of(const std::vector<Option>& options) {
  std::vector<Option> hull;
  const auto slope = [](const Option& a, const Option& b) {
    return (a.kl - b.kl) / (double(b.bytes) - double(a.bytes));
  };
  for (const Option& option : options) {
    if (!hull.empty() && (option.bytes <= hull.back().bytes || option.kl >= hull.back().kl))
      continue;
    while (hull.size() > 1 &&
           slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), option))
      hull.pop_back();
    hull.push_back(option);
  }
  return hull;
}

constexpr int64_t kStrips = 8;  // sample of a tensor

// The formats of the ladder with fewer bits than the tensor's own; then its own, without error.
std::vector<Option> options_of(const WeightJob& job, const Calibration& calibration,
                               const std::string& file) {
  const TensorSource& from = job.source;
  const double kl = calibration.kl.at(job.slot.gguf);
  std::vector<Option> options;
  double probe = 0;  // the probe's error; the other divergences are computed from it
  for (const Format to : kLadder) {
    if (info(to).bits() >= info(from.info.format).bits()) break;
    // If the probe format caused no divergence, that of fewer bits is unknown: they are skipped.
    if (kl == 0 && info(to).bits() < info(kProbe).bits()) continue;
    TensorEncoder encoder(from, to, file,
                          {inputs_of(calibration, job), nullptr, RoundingMethod::search});
    std::vector<std::byte> strip(strip_bytes(to, from.info.cols));
    const int64_t all = strips_of(from.info), sample = std::min(kStrips, all);
    for (int64_t i = 0; i < sample; ++i) encoder.encode(i * all / sample, strip.data());
    const double error = encoder.weighed_error();
    if (to == kProbe) probe = error;
    TensorInfo as = from.info;
    as.format = to;
    options.push_back({to, as.bytes(), error});
  }
  for (Option& option : options) option.kl = probe > 0 ? kl * option.kl / probe : 0;
  options.push_back({from.info.format, from.info.bytes(), 0});
  return options;
}

// The chosen option of every candidate.
struct Choices {
  std::vector<size_t> option;
  uint64_t bytes = 0;
  double kl = 0;
};

// The greedy walk, from the fewest bits up. Candidates with fixed[i] >= 0 get that option.
Choices walk(const std::vector<Hull>& hulls, uint64_t most, double kl,
             const std::vector<int>& fixed) {
  struct Step {
    size_t candidate, option;
    double worth;  // divergence saved per byte
  };
  Choices all{std::vector<size_t>(hulls.size()), 0, 0};
  std::vector<Step> steps;
  for (size_t i = 0; i < hulls.size(); ++i) {
    const std::vector<Option>& hull = hulls[i].options;
    if (fixed[i] >= 0) all.option[i] = size_t(fixed[i]);
    all.bytes += hull[all.option[i]].bytes, all.kl += hull[all.option[i]].kl;
    for (size_t o = 1; o < hull.size() && fixed[i] < 0; ++o) {
      const Option &from = hull[o - 1], &to = hull[o];
      steps.push_back({i, o, (from.kl - to.kl) / double(to.bytes - from.bytes)});
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.worth > b.worth; });
  for (const Step& step : steps) {
    if (all.kl <= kl) break;
    const std::vector<Option>& hull = hulls[step.candidate].options;
    const Option &from = hull[step.option - 1], &to = hull[step.option];
    if (all.option[step.candidate] + 1 != step.option || all.bytes + to.bytes - from.bytes > most)
      continue;
    all.option[step.candidate] = step.option;
    all.bytes += to.bytes - from.bytes, all.kl += to.kl - from.kl;
  }
  return all;
}

// A step of a large weight, such as the embedding, may no longer fit when its turn comes, and the
// bytes left then save little. So each option is tried for weights that take at least 2% of all.
Choices best(const std::vector<Hull>& hulls, uint64_t most, double kl) {
  const auto better = [&](const Choices& a, const Choices& b) {
    if (a.bytes > most || b.bytes > most) return a.bytes < b.bytes;
    if (a.kl <= kl && b.kl <= kl) return a.bytes < b.bytes;
    return a.kl < b.kl;
  };
  std::vector<int> fixed(hulls.size(), -1);
  Choices found = walk(hulls, most, kl, fixed);
  for (size_t i = 0; i < hulls.size(); ++i) {
    if (hulls[i].options[0].bytes < found.bytes / 50) continue;
    int chosen = -1;
    for (size_t o = 0; o < hulls[i].options.size(); ++o) {
      fixed[i] = int(o);
      if (Choices other = walk(hulls, most, kl, fixed); better(other, found))
        found = std::move(other), chosen = fixed[i];
    }
    fixed[i] = chosen;
  }
  return found;
}

std::string in_megabytes(uint64_t bytes) { return fmt::format("{:.2f} MB", double(bytes) / 1e6); }

// How many bytes the budget leaves for tensors that have `weights` numbers.
uint64_t bytes_for_tensors(const RecipeLimit& budget, uint64_t weights) {
  return budget.file_bytes ? *budget.file_bytes - std::min(*budget.file_bytes, budget.overhead)
         : budget.bytes    ? *budget.bytes
         : budget.bits_per_weight ? uint64_t(*budget.bits_per_weight / 8 * double(weights))
                                  : UINT64_MAX;
}

// Throws if the budget leaves less than `least` bytes for tensors.
void expect_room(const std::string& file, const RecipeLimit& budget, uint64_t weights,
                 uint64_t least) {
  const uint64_t most = bytes_for_tensors(budget, weights);
  if (least <= most) return;
  fail(Exit::usage, "{}: {}, expected at least {}, the smallest size that can be chosen", file,
       budget.asked.empty()
           ? "the budget is " + in_megabytes(budget.file_bytes.value_or(most))
           : fmt::format("{} leaves {} for weights", budget.asked, in_megabytes(most)),
       in_megabytes(budget.file_bytes ? least + budget.overhead : least));
}

// A tensor in the format that it has without a choice.
TensorInfo unchosen_form(TensorInfo tensor) {
  if (!tensor.tiled()) tensor.format = Format::f32;
  return tensor;
}

}  // namespace

void expect_possible(const WeightJobs& jobs, const std::string& file, const RecipeLimit& budget) {
  uint64_t least = 0, weights = 0;
  for (const WeightJob& job : jobs) {
    const TensorInfo as = unchosen_form(job.from());
    least += as.bytes(), weights += uint64_t(as.rows * as.cols);
  }
  for (const size_t i : candidates(jobs)) {
    TensorInfo as = jobs[i].from();
    least -= as.bytes();
    if (info(kLadder[0]).bits() < info(as.format).bits()) as.format = kLadder[0];
    least += as.bytes();
  }
  expect_room(file, budget, weights, least);
}

struct FormatCosts::Impl {
  std::string file;
  std::vector<Hull> hulls;
  FormatPlan unchosen;  // every tensor in its own format
};

FormatCosts::FormatCosts(const WeightJobs& jobs, const std::string& file,
                         const Calibration& calibration, int threads) {
  if (calibration.kl.empty())
    fail(Exit::usage,
         "the calibration has no KL divergences of the weights; --calibrate TEXT with --size, "
         "--fits, --bpw or --kl measures them");
  std::vector<Hull> all;
  for (const size_t i : candidates(jobs)) {
    if (calibration.kl.count(jobs[i].slot.gguf) == 0)
      fail(Exit::bad_file,
           "{}: the KL divergence of weight {} is missing; --calibrate TEXT --stats FILE --resume "
           "measures all missing ones",
           file, escaped(jobs[i].slot.gguf));
    all.push_back({i, {}});
  }
  for_each_job(all.size(), threads > 0 ? threads : usable_cores(), [&](size_t i) {
    all[i].options = hull_of(options_of(jobs[all[i].tensor], calibration, file));
  });
  FormatPlan unchosen;
  for (const WeightJob& job : jobs) {
    const TensorInfo as = unchosen_form(job.from());
    unchosen.tensors.push_back({as.name, as.format, as.bytes(), 0});
    unchosen.weights += uint64_t(as.rows * as.cols);
    if (as.tiled()) unchosen.recipe[as.name] = as.format;
  }
  impl_ = std::make_unique<const Impl>(Impl{file, std::move(all), std::move(unchosen)});
}

FormatCosts::~FormatCosts() = default;

FormatPlan FormatCosts::plan(const RecipeLimit& budget) const {
  const auto& [file, all, unchosen] = *impl_;
  FormatPlan result = unchosen;
  uint64_t others = 0;  // tensors whose format is not chosen
  for (const FormatPlan::Row& row : result.tensors) others += row.bytes;
  for (const Hull& hull : all) others -= result.tensors[hull.tensor].bytes;
  const uint64_t most = bytes_for_tensors(budget, result.weights);
  const Choices choices = best(all, most - std::min(most, others), budget.kl.value_or(0));
  result.bytes = others + choices.bytes, result.kl = choices.kl;
  result.file_bytes = result.bytes + budget.overhead;
  expect_room(file, budget, result.weights, result.bytes);
  for (size_t i = 0; i < all.size(); ++i) {
    const Option& to = all[i].options[choices.option[i]];
    FormatPlan::Row& row = result.tensors[all[i].tensor];
    row.to = to.to, row.bytes = to.bytes, row.kl = to.kl;
    result.recipe[row.name] = to.to;
  }
  return result;
}

Recipe read_recipe(const std::string& file, std::string_view text, const WeightJobs& jobs,
                   const std::string& model) {
  struct Line {
    Pattern name;
    Format to;
    size_t number;
    bool used = false;
  };
  std::vector<Line> lines;
  const auto trimmed = [](std::string_view part) {
    const size_t first = part.find_first_not_of(" \t\r");
    return first == part.npos ? std::string_view{}
                              : part.substr(first, part.find_last_not_of(" \t\r") + 1 - first);
  };
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    const size_t sign = line.rfind('=');
    const std::string_view type = sign == line.npos ? "" : trimmed(line.substr(sign + 1));
    const auto to = format_named(type);
    if (!to || trimmed(line.substr(0, sign)).empty())
      fail(Exit::usage, "{}: line {} is \"{}\", expected REGEX = TYPE with a type of --type", file,
           number, escaped(line));
    try {
      lines.push_back({{trimmed(line.substr(0, sign)), Pattern::Of::bytes}, *to, number});
    } catch (const PatternError& error) {
      fail(Exit::usage, "{}: line {}: \"{}\" is not a regular expression: {} (at byte {})", file,
           number, escaped(trimmed(line.substr(0, sign))), error.what, error.at);
    }
  }
  Recipe recipe;
  PatternSearch search(1'000'000);
  for (const WeightJob& job : jobs) {
    const TensorInfo& tensor = job.from();
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) {
      try {
        return search.find(l.name, tensor.name);
      } catch (const PatternError& error) {
        fail(Exit::usage, "{}: line {}: matching it with {} failed: {}", file, l.number,
             escaped(tensor.name), error.what);
      }
    });
    if (line == lines.end() || !tensor.tiled() || job.slot.role == Role::outliers) continue;
    recipe[tensor.name] = line->to;
    line->used = true;
  }
  for (const Line& line : lines)
    if (!line.used)
      fail(Exit::usage, "{}: line {} matches no tensor of {} that earlier lines do not match", file,
           line.number, model);
  return recipe;
}

void save_recipe(const std::string& path, const Recipe& recipe) {
  std::string text;
  for (const auto& [name, format] : recipe)
    text += fmt::format("^\\Q{}\\E$ = {}\n", name, info(format).name);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.commit();
}

}  // namespace chaski
