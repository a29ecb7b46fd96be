// chaski quantize: a model to a smaller .quipu file, with the recipe it used on stdout.
#include "engine/quantize/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "engine/measure/forecast.h"
#include "engine/quantize/mixture.h"
#include "main/commands/known_inputs.h"
#include "main/commands/layer_order.h"
#include "main/commands/quantize_flags.h"
#include "main/commands/quantize_interrupt.h"
#include "main/flags/commands.h"
#include "main/flags/formats.h"
#include "main/flags/options.h"
#include "main/flags/values.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"

namespace chaski {

namespace {

std::string name_of(Format format) { return std::string(info(format).name); }

// Warns about results that the user probably did not want: weights that were quantized twice, a
// file that did not get smaller, a calibration of another model, outliers that were not found.
void put_notes(const std::string& path, const QuantizeReport& report, double outliers) {
  const auto note = [](const std::string& line) { put_notice(with_name_of_model(line)); };
  std::vector<std::string> formats;
  for (const QuantizedTensor& t : report.tensors)
    if (t.from != t.to && info(t.from).block > 1 && t.error > 0 &&
        std::find(formats.begin(), formats.end(), name_of(t.from)) == formats.end())
      formats.push_back(name_of(t.from));
  if (!formats.empty())
    note(fmt::format(
        "{}: weights that were already quantized ({}) were quantized again, which loses "
        "precision twice: better use the original model",
        path, fmt::join(formats, ", ")));
  if (report.bytes_after >= report.bytes_before)
    note(fmt::format("{}: the weights did not get smaller", path));
  if (!report.unmatched.empty())
    note(fmt::format("{}: the calibration has tensors that are not in the model: {}", path,
                     safe_for_terminal(fmt::to_string(fmt::join(report.unmatched, ", ")))));
  if (outliers > 0 && std::none_of(report.tensors.begin(), report.tensors.end(),
                                   [](const QuantizedTensor& t) { return t.outliers > 0; }))
    note(
        fmt::format("{}: --outliers kept no columns in 16 bits: no column's mean squared input is "
                    "above {:g} times "
                    "the median of its weight; a smaller number keeps more",
                    path, outliers));
}

// "12 q4, 3 q6" of `formats`.
std::string counts_of(const std::vector<Format>& formats) {
  std::map<Format, int> tensors;
  for (const Format format : formats) ++tensors[format];
  std::vector<std::string> parts;
  for (const auto& [format, n] : tensors) parts.push_back(fmt::format("{} {}", n, name_of(format)));
  return fmt::to_string(fmt::join(parts, ", "));
}

void put_plan(const FormatPlan& plan, bool every_tensor) {
  std::string text;
  if (every_tensor) {
    std::vector<std::vector<std::string>> rows = {{"tensor", "format", "bytes", "KL, predicted"}};
    for (const FormatPlan::Row* row : by_layers(
             plan.tensors, [](auto& t) -> auto& { return t.name; }))
      rows.push_back({safe_for_terminal(row->name), name_of(row->to), std::to_string(row->bytes),
                      fmt::format("{:.2e}", row->kl)});
    text += table(rows, "<<><");
  }
  std::vector<Format> formats;
  for (const auto& [name, format] : plan.recipe) formats.push_back(format);
  put(text +
      fmt::format("plan: a file of {:.2f} MB, {:.3f} bits per weight, predicted KL {:.4f}: {}\n",
                  double(plan.file_bytes) / 1e6, plan.bits_per_weight(), std::max(0.0, plan.kl),
                  counts_of(formats)));
}

// --dry-run without a budget: the formats of --type or of a recipe.
void put_dry_run(const QuantizeFlags& flags, const ModelSource& source, WeightJobs jobs) {
  uint64_t bytes = 0, weights = 0;
  std::vector<Format> formats;
  JsonValue tensors = JsonValue::array();
  std::vector<std::vector<std::string>> rows = {{"tensor", "format", "bytes", "notes"}};
  const std::vector<QuantizedTensor> all =
      planned_tensors(source, std::move(jobs), flags.out, flags.options);
  for (const QuantizedTensor* tensor : by_layers(
           all, [](auto& t) -> auto& { return t.name; })) {
    bytes += tensor->bytes_after;
    formats.push_back(tensor->to);
    rows.push_back({safe_for_terminal(tensor->name), name_of(tensor->to),
                    std::to_string(tensor->bytes_after), tensor->reason});
    tensors.push_back({{"name", tensor->name},
                       {"to", name_of(tensor->to)},
                       {"bytes", tensor->bytes_after},
                       {"reason", tensor->reason}});
  }
  for (const TensorSource& tensor : source.tensors)
    weights += uint64_t(tensor.info.rows * tensor.info.cols);
  const uint64_t file = bytes + overhead_of(source, flags.options);
  const double bits = 8.0 * double(bytes) / double(weights);
  if (flags.json.any())
    return flags.json.put_result({{"input", flags.in},
                                  {"file_bytes", file},
                                  {"bytes", bytes},
                                  {"bits_per_weight", bits},
                                  {"tensors", tensors}});
  put(table(rows, "<<><") + fmt::format("plan: a file of {:.2f} MB, {:.3f} bits per weight: {}\n",
                                        double(file) / 1e6, bits, counts_of(formats)));
}

void put_plan_json(const QuantizeFlags& flags, const FormatPlan& plan) {
  JsonValue tensors = JsonValue::array();
  for (const FormatPlan::Row& row : plan.tensors)
    tensors.push_back(
        {{"name", row.name}, {"to", name_of(row.to)}, {"bytes", row.bytes}, {"kl", row.kl}});
  flags.json.put_result({{"input", flags.in},
                         {"file_bytes", plan.file_bytes},
                         {"bytes", plan.bytes},
                         {"bits_per_weight", plan.bits_per_weight()},
                         {"kl", plan.kl},
                         {"tensors", tensors}});
}

// Writes at most ten events a second.
OnProgress progress_lines() {
  using Clock = std::chrono::steady_clock;
  return [last = Clock::time_point()](const FileProgress& progress) mutable {
    if (Clock::now() - last < std::chrono::milliseconds(100)) return;
    last = Clock::now();
    put_event("progress",
              {{"tensor", progress.tensor}, {"done", progress.done}, {"total", progress.total}});
  };
}

// The bytes that --fits leaves for weights.
uint64_t room_in(const QuantizeFlags& flags, const ModelSource& source) {
  EngineOptions engine;
  engine.model = flags.in, engine.tokenizer = flags.options.tokenizer;
  engine.device = "cpu", engine.threads = flags.options.threads, engine.context = flags.context;
  return room_for_weights(source, engine, bytes_of("--fits", flags.fits));
}

RecipeLimit budget_of(const QuantizeFlags& flags, const ModelSource& source) {
  RecipeLimit budget;
  budget.overhead = overhead_of(source, flags.options);
  if (!flags.size.empty()) budget.file_bytes = bytes_of("--size", flags.size);
  if (!flags.fits.empty())
    budget.bytes = room_in(flags, source), budget.asked = "--fits " + flags.fits;
  if (flags.bits_flag.given()) budget.bits_per_weight = flags.bits;
  if (flags.kl_flag.given()) budget.kl = flags.kl;
  return budget;
}

// The formats that a budget or a recipe chooses; empty without either.
Recipe recipe_of(const QuantizeFlags& flags, const ModelSource& source, const WeightJobs& jobs) {
  if (const std::string mixture = flags.mixture(); !mixture.empty())
    return *recipe_of_mixture(mixture, jobs, source.meta, flags.options.type,
                              flags.options.calibration != nullptr);
  if (!flags.recipe.empty())
    return read_recipe(flags.recipe, read_text(flags.recipe), jobs, source.path);
  if (!flags.has_budget()) return {};
  const Calibration none;
  const Calibration* known = flags.options.calibration;
  const FormatPlan plan =
      FormatCosts(jobs, source.path, known ? *known : none, flags.options.threads)
          .plan(budget_of(flags, source));
  if (!flags.json.any())
    put_plan(plan, flags.dry_run);
  else if (flags.dry_run)
    put_plan_json(flags, plan);
  if (!flags.recipe_out.empty()) save_recipe(flags.recipe_out, plan.recipe);
  return plan.recipe;
}

std::vector<std::string> row_of(const QuantizedTensor& tensor) {
  const std::string change = tensor.from == tensor.to
                                 ? name_of(tensor.to)
                                 : name_of(tensor.from) + " -> " + name_of(tensor.to);
  const std::string error = tensor.error > 0 ? fmt::format("{:.2e}", tensor.error) : "exact";
  std::vector<std::string> notes;
  for (const std::string& note : {tensor.reason, tensor.not_weighed})
    if (!note.empty()) notes.push_back(note);
  if (tensor.outputs.gptq > 0)
    notes.push_back(fmt::format(
        "{}: output error {:.2e}{}", tensor.outputs.feeds_back ? "gptq" : "search",
        tensor.outputs.lost(),
        tensor.outputs.feeds_back ? fmt::format(", {:.2e} by search", tensor.outputs.search) : ""));
  if (!tensor.searched.empty())
    notes.push_back(fmt::format("too few tokens for feedback came to experts {}, so search is used",
                                fmt::join(tensor.searched, ", ")));
  if (tensor.inputs.power > 0)
    notes.push_back(fmt::format("awq, power {}: output error {:.2e}, {:.2e} without",
                                tensor.inputs.power, tensor.inputs.lost,
                                tensor.inputs.lost_without));
  if (tensor.outliers > 0) notes.push_back(fmt::format("{} columns in 16 bits", tensor.outliers));
  return {safe_for_terminal(tensor.name), change, error, fmt::format("{}", fmt::join(notes, "; "))};
}

// The gain of feedback, over all tensors that use it.
std::string gain_of(const QuantizeReport& report) {
  double search = 0, lost = 0, n = 0;
  for (const QuantizedTensor& t : report.tensors)
    if (t.outputs.gptq > 0) search += t.outputs.search, lost += t.outputs.lost(), ++n;
  if (n == 0) return "";
  return fmt::format("mean output error of {} tensors: {:.2e}, {:.2e} by search\n", n, lost / n,
                     search / n);
}

std::string megabytes(uint64_t bytes) { return fmt::format("{:.2f} MB", double(bytes) / 1e6); }

void put_report(const QuantizeReport& report, const Calibration* calibration) {
  std::vector<std::vector<std::string>> rows = {{"tensor", "format", "error", "notes"}};
  for (const QuantizedTensor* tensor : by_layers(
           report.tensors, [](auto& t) -> auto& { return t.name; }))
    rows.push_back(row_of(*tensor));
  std::string text = table(rows, "<<><");
  if (calibration)
    text +=
        fmt::format("errors of {} tensors weighted by {} (xxh3 {}){}\n",
                    std::count_if(report.tensors.begin(), report.tensors.end(),
                                  [](const QuantizedTensor& t) { return t.weighed; }),
                    safe_for_terminal(calibration->text), safe_for_terminal(calibration->hash),
                    calibration->tokens > 0 ? fmt::format(", {} tokens", calibration->tokens) : "");
  text += gain_of(report);
  if (report.kept > 0)
    text += fmt::format("{} of {} tensors were finished by an earlier run\n", report.kept,
                        report.tensors.size());
  text += fmt::format("weights {} -> {}", megabytes(report.bytes_before),
                      megabytes(report.bytes_after));
  if (report.encode_seconds > 0)
    text += fmt::format("; {:.1f} million weights in {:.1f} s, {:.1f} million per second and core",
                        double(report.weights) / 1e6, report.seconds,
                        double(report.weights) / 1e6 / report.encode_seconds);
  put(text + "\n");
}

void put_report_json(const QuantizeFlags& flags, const QuantizeReport& report) {
  JsonValue tensors = JsonValue::array();
  for (const QuantizedTensor& t : report.tensors) {
    tensors.push_back({{"name", t.name},
                       {"from", name_of(t.from)},
                       {"to", name_of(t.to)},
                       {"bytes_before", t.bytes_before},
                       {"bytes_after", t.bytes_after},
                       {"relative_squared_error", t.error},
                       {"reason", t.reason},
                       {"weighed", t.weighed},
                       {"not_weighed", t.not_weighed}});
    if (const TensorEncoder::Outputs& o = t.outputs; o.gptq > 0)
      tensors.back()["outputs"] = {{"method", o.feeds_back ? "gptq" : "search"},
                                   {"relative_squared_error", o.lost()},
                                   {"by_search", o.search}};
    if (!t.searched.empty()) tensors.back()["searched_experts"] = t.searched;
    if (const InputPower& i = t.inputs; i.power > 0)
      tensors.back()["awq"] = {{"power", i.power}, {"error", i.lost}, {"without", i.lost_without}};
    if (t.outliers > 0) tensors.back()["outlier_columns"] = t.outliers;
  }
  JsonValue json{{"input", flags.in},
                 {"output", flags.out},
                 {"type", flags.type},
                 {"bytes_before", report.bytes_before},
                 {"bytes_after", report.bytes_after},
                 {"encoded_weights", report.weights},
                 {"kept_tensors", report.kept},
                 {"seconds", report.seconds},
                 {"encode_seconds_of_all_threads", report.encode_seconds},
                 {"tensors", tensors}};
  if (const Calibration* c = flags.options.calibration)
    json["calibration"] = {{"text", c->text}, {"xxh3", c->hash}, {"tokens", c->tokens}};
  flags.json.put_result(json);
}

// A GGUF file cannot hold q4, the default otherwise.
constexpr const char* kTypeOfGguf = "Q4_K_M";

RoundingMethod method_of(const QuantizeFlags& flags) {
  if (flags.fast) return RoundingMethod::fast;
  if (flags.method == "gptq" || flags.method == "awq+gptq") return RoundingMethod::gptq;
  return flags.method == "auto" ? RoundingMethod::best : RoundingMethod::search;
}

int quantize(QuantizeFlags& flags) {
  if (is_name_of_type(flags.out))
    fail(Exit::usage,
         "{} is in the place of the output file, expected chaski quantize IN OUT TYPE, such as "
         "chaski quantize {} small.quipu {}",
         flags.out, flags.in,
         std::ranges::count(types_and_mixtures(), flags.out) > 0 ? flags.out : flags.type);
  const bool to_gguf = flags.out.ends_with(".gguf");
  if (to_gguf && !flags.type_flag.given() && !flags.has_budget() && flags.recipe.empty())
    flags.type = kTypeOfGguf;
  const std::string mixture = flags.mixture();
  // Without a type, a GGUF file gets the mixture of --recipe, or that one.
  const bool is_type = !flags.type_flag.given() && !mixture.empty() && to_gguf;
  const auto base = base_of_mixture(is_type ? mixture : flags.type);
  flags.options.type = base ? *base : *format_named(flags.type);  // one of quantize_types()
  flags.options.awq = flags.method.starts_with("awq");
  flags.options.method = method_of(flags);
  flags.options.notice = [](const std::string& line) { put_notice(line); };
  if (flags.keep_above_flag.given()) flags.options.keep_above = flags.keep_above;
  check_flags(flags);
  if (is_type) flags.type = mixture;
  put_idle_calibration(flags);
  const OpenModel model = open_model(flags.in, flags.options.tokenizer);
  WeightJobs jobs = jobs_of(model.source);
  // Refused before anything is measured.
  if (flags.has_budget()) expect_possible(jobs, model.source.path, budget_of(flags, model.source));
  const QuantizeInterrupt at_interrupt{flags.out, flags.stats, !flags.text.empty(),
                                       flags.options.resume};
  at_interrupt.is_measuring();
  const KnownInputs known = known_inputs(calibration_flags(flags), model, jobs,
                                         flags.json.lines ? progress_lines() : OnProgress());
  flags.options.calibration = known.calibration ? &*known.calibration : nullptr;
  flags.options.feedbacks = known.feedbacks.get();
  flags.options.recipe = recipe_of(flags, model.source, jobs);
  flags.options.recipe_of_budget = flags.has_budget();
  if (!mixture.empty())
    flags.options.file_type = file_type_of(mixture);
  else if (!flags.has_budget() && flags.recipe.empty())
    flags.options.file_type = file_type_of(flags.type, flags.options.type);
  if (flags.dry_run) {
    if (!flags.has_budget()) put_dry_run(flags, model.source, std::move(jobs));
    drop_unfinished_measurements(calibration_flags(flags));
    return int(Exit::done);
  }
  at_interrupt.is_encoding();
  const bool replaces = replaces_file(flags.out);
  QuantizeReport report;
  {
    std::optional<ProgressBar> bar;
    const auto show = [&](const FileProgress& p) {
      const bool copies = p.to_encode == 0;
      if (!bar)
        bar.emplace(copies ? ProgressScale{double(p.total) / 1e6, "MB"}
                           : ProgressScale{double(p.to_encode) / 1e6, "million weights"});
      bar->show(copies ? p : FileProgress{p.tensor, p.encoded, p.to_encode});
    };
    report = quantize_model(model.source, std::move(jobs), flags.out, flags.options,
                            flags.json.lines ? progress_lines() : show);
  }
  drop_unfinished_measurements(calibration_flags(flags));
  if (flags.json.any())
    put_report_json(flags, report);
  else if (!is_quiet())
    put_report(report, flags.options.calibration);
  if (replaces) put_notice(flags.out + ": the model that was there is replaced");
  put_notes(flags.in, report, flags.options.outliers);
  return int(Exit::done);
}

}  // namespace

Action declare_quantize(Flags parser) {
  auto flags = std::make_shared<QuantizeFlags>();
  parser.add("IN", flags->in, "model file or folder")
      .not_empty("a model file or folder")
      .model()
      .required()
      .type("FILE");
  parser.add("OUT", flags->out, "the file to write: GGUF if it ends in .gguf, else .quipu")
      .not_empty("a file to write")
      .required()
      .type("FILE");
  flags->type_flag =
      parser
          .add("--type,TYPE", flags->type,
               "format of the weights: q2, q3, q4, q5, q6 or q8 (default q4), or llama-quantize's "
               "mixture: Q4_K_M (default for a GGUF file), ...; chaski help formats lists all")
          .one_of(types_and_mixtures(), type_instead)
          .type("FORMAT");
  flags->keep_above_flag = parser
                               .add("--keep-above", flags->keep_above,
                                    "a weight whose relative squared error would be above X keeps "
                                    "more bits (default 0.02; "
                                    "q3 and q3_k: 0.06; q2 and q2_k: 0.2)")
                               .type("X");
  parser
      .add("--calibrate", flags->text,
           "run the model on this text; the error of a column counts more, the larger its inputs "
           "are")
      .not_empty("a file of text")
      .notes_if_repeated()
      .type("FILE");
  parser
      .add(
          "--method", flags->method,
          "how weights are rounded. search: each by itself; gptq: later columns compensate the "
          "errors of earlier ones; awq, awq+gptq: the same, with inputs scaled if that loses less; "
          "auto: search or gptq, whichever loses less (default auto)")
      .one_of({"auto", "search", "gptq", "awq", "awq+gptq"})
      .type("NAME");
  Flag outliers = flags->outliers_flag =
      parser
          .add("--outliers", flags->options.outliers,
               "experimental: keep columns in 16 bits if the mean square of their inputs is more "
               "than "
               "X times the median, at most one column in 16 (1000 finds the few extreme ones). "
               "Needs "
               "--calibrate or --stats; not with --size, --fits, --bpw or --kl")
          .type("X");
  flags->windows_flag =
      parser
          .add("--chunks", flags->windows,
               "chunks of 512 tokens that --calibrate reads, at most; 0: the whole "
               "text (default 256)")
          .within(0, std::numeric_limits<int>::max())
          .type("N");
  parser
      .add("--stats", flags->stats,
           "with --calibrate: save the measurements to this file, every few seconds while a budget "
           "is planned. Without: read them from it (llama.cpp's imatrix files work too)")
      .not_empty("a file")
      .type("FILE");
  parser
      .add_switch(
          "--fast", flags->fast,
          "round without a search: fifteen times as fast, but less exact (q4 of SmolLM2-135M: KL "
          ".20 "
          "instead of .13, docs/quantization.md). Not with --calibrate, --stats, --method or "
          "--outliers")
      .excludes(parser.named("--calibrate"))
      .excludes(parser.named("--stats"))
      .excludes(parser.named("--method"))
      .excludes(outliers);
  parser.add_switch(
      "--resume", flags->options.resume,
      "continue an earlier run of the same command that was killed, and keep finished tensors if "
      "this run is killed. Measurements of --calibrate are continued too, from --stats or from a "
      "file next to OUT; the search of awq runs again");
  Flag size = parser
                  .add("--size", flags->size,
                       "budget: choose each weight's format so that the file has at most this size "
                       "(e.g. 180M, "
                       "1.5G). Needs --calibrate, or --stats of such a run")
                  .not_empty("a number of bytes")
                  .type("BYTES");
  Flag fits = parser
                  .add("--fits", flags->fits,
                       "the same budget as the memory of chaski run on the CPU, with the context "
                       "of -c (e.g. "
                       "8G)")
                  .not_empty("a number of bytes")
                  .type("BYTES");
  flags->context_flag =
      parser
          .add("-c,--ctx", flags->context,
               "with --fits: context size in tokens; 0: the model's maximum (default 0)")
          .within(0, std::numeric_limits<int>::max())
          .type("N");
  Flag bits = flags->bits_flag =
      parser.add("--bpw", flags->bits, "the same budget in bits per weight, on average").type("X");
  Flag kl = flags->kl_flag = parser
                                 .add("--kl", flags->kl,
                                      "the other way round: the smallest size with at most this "
                                      "predicted KL divergence from "
                                      "IN")
                                 .type("X");
  Flag recipe =
      parser
          .add("--recipe", flags->recipe,
               "file with lines REGEX = TYPE; the first line that matches a tensor's name "
               "decides. Or Q4_K_M: llama.cpp's mixture, in q4h and q6 (in q4_k and q6_k if "
               "--type is a GGUF format, or OUT a GGUF file)")
          .not_empty("a file")
          .type("FILE");
  Flag budgets[] = {size, fits, bits, kl, recipe};
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < i; ++j) budgets[i].excludes(budgets[j]);
  for (int i = 0; i < 4; ++i)
    budgets[i].excludes(outliers);  // budgets do not count the outliers' bytes
  parser
      .add("--write-recipe", flags->recipe_out,
           "write the formats that the budget chose to this file, for --recipe")
      .not_empty("a file to write")
      .type("FILE");
  parser.add_switch("--dry-run", flags->dry_run,
                    "show the formats that the type, recipe or budget gives, and write nothing");
  declare_threads(parser, flags->options.threads);
  declare_tokenizer(parser, flags->options.tokenizer);
  declare_json(parser, flags->json);
  parser.table({"Formats", weight_formats({"q2", "q3", "q4", "q5", "q6", "q8"})});
  parser.example("A good size for most uses", "chaski quantize model.gguf small.quipu");
  parser.example("Closer to the original: errors weighted by the inputs on a text",
                 "chaski quantize model.gguf small.quipu q5 --calibrate book.txt");
  parser.example("The format of each tensor at 5 bits per weight",
                 "chaski quantize model.gguf small.quipu --bpw 5 --calibrate book.txt --dry-run");
  return [flags] { return quantize(*flags); };
}

}  // namespace chaski
