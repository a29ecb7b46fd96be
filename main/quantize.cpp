// chaski quantize: a model to a smaller .quipu file, with the recipe it used on stdout.
#include "engine/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "main/commands.h"
#include "main/json_output.h"
#include "main/layer_order.h"
#include "main/options.h"
#include "main/output.h"
#include "main/progress.h"

namespace chaski {

namespace {

struct QuantizeFlags {
  std::string in, out, type = "q4";
  std::string text, stats;  // of the calibration; empty: none
  int windows = 0;          // 0: 256
  QuantizeOptions options;
  bool json = false;
};

std::string name_of(Format format) { return std::string(info(format).name); }

// Encoding what has been encoded loses twice; whoever does it shall know. And a file that was made
// smaller shall be smaller.
void put_notes(const std::string& path, const QuantizeReport& report) {
  std::vector<std::string> formats;
  for (const QuantizedTensor& t : report.tensors)
    if (t.from != t.to && info(t.from).block > 1 &&
        std::find(formats.begin(), formats.end(), name_of(t.from)) == formats.end())
      formats.push_back(name_of(t.from));
  if (!formats.empty())
    put_notice(
        fmt::format("{}: weights that were quantized already ({}) were encoded again, "
                    "which loses a second time",
                    path, fmt::join(formats, ", ")));
  if (report.bytes_after >= report.bytes_before)
    put_notice(fmt::format("{}: the weights did not get smaller", path));
  if (!report.unmatched.empty())
    put_notice(fmt::format("{}: the calibration has tensors that the model lacks: {}", path,
                           safe_for_terminal(fmt::to_string(fmt::join(report.unmatched, ", ")))));
}

// Nothing if none was asked for. One that is made is saved if --stats names a file; --stats alone
// reads it.
std::optional<Calibration> calibration_of(const QuantizeFlags& flags) {
  if (flags.text.empty())
    return flags.stats.empty() ? std::nullopt : std::optional(load_calibration(flags.stats));
  std::optional<ProgressBar> bar;
  const auto show = [&](const FileProgress& progress) {
    if (!bar) bar.emplace(ProgressScale{double(progress.total), "tokens"});
    bar->show(progress);
  };
  const Calibration calibration =
      calibrate({flags.in, flags.options.tokenizer, flags.windows > 0 ? flags.windows : 256,
                 flags.options.threads},
                flags.text, read_text(flags.text), show);
  if (!flags.stats.empty()) save_calibration(flags.stats, calibration, flags.in);
  return calibration;
}

std::string row_of(const QuantizedTensor& tensor) {
  const std::string change = tensor.from == tensor.to
                                 ? name_of(tensor.to)
                                 : name_of(tensor.from) + " -> " + name_of(tensor.to);
  const std::string error = tensor.error > 0 ? fmt::format("{:.2e}", tensor.error) : "exact";
  const char* between = tensor.reason.empty() || tensor.not_weighed.empty() ? "" : "; ";
  return fmt::format("{:<28}{:<14}{:>10}  {}{}{}", safe_for_terminal(tensor.name), change, error,
                     tensor.reason, between, tensor.not_weighed);
}

std::string megabytes(uint64_t bytes) { return fmt::format("{:.2f} MB", double(bytes) / 1e6); }

void put_report(const QuantizeReport& report, const Calibration* calibration) {
  std::string text =
      fmt::format("{:<28}{:<14}{:>10}  {}\n", "tensor", "format", "error", "why not as asked");
  for (const QuantizedTensor* tensor : by_layers(
           report.tensors, [](auto& t) -> auto& { return t.name; })) {
    const std::string row = row_of(*tensor);
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  if (calibration)
    text +=
        fmt::format("errors of {} tensors weighed by {} (xxh3 {}){}\n",
                    std::count_if(report.tensors.begin(), report.tensors.end(),
                                  [](const QuantizedTensor& t) { return t.weighed; }),
                    safe_for_terminal(calibration->text), safe_for_terminal(calibration->hash),
                    calibration->tokens > 0 ? fmt::format(", {} tokens", calibration->tokens) : "");
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
  for (const QuantizedTensor& t : report.tensors)
    tensors.push_back({{"name", t.name},
                       {"from", name_of(t.from)},
                       {"to", name_of(t.to)},
                       {"bytes_before", t.bytes_before},
                       {"bytes_after", t.bytes_after},
                       {"relative_squared_error", t.error},
                       {"reason", t.reason},
                       {"weighed", t.weighed},
                       {"not_weighed", t.not_weighed}});
  JsonValue json{{"input", flags.in},
                 {"output", flags.out},
                 {"type", flags.type},
                 {"bytes_before", report.bytes_before},
                 {"bytes_after", report.bytes_after},
                 {"encoded_weights", report.weights},
                 {"seconds", report.seconds},
                 {"encode_seconds_of_all_threads", report.encode_seconds},
                 {"tensors", tensors}};
  if (const Calibration* c = flags.options.calibration)
    json["calibration"] = {{"text", c->text}, {"xxh3", c->hash}, {"tokens", c->tokens}};
  put_json(json);
}

// Nothing that is read is written over, and nobody waits for a file that cannot be written.
void check_files(const QuantizeFlags& flags) {
  if (flags.windows > 0 && flags.text.empty())
    fail(Exit::usage, "--chunks is {}, expected it beside --calibrate only", flags.windows);
  expect_quantizable(flags.options, flags.in, flags.out);
  expect_output(flags.out, {flags.text, flags.stats});
  if (!flags.text.empty() && !flags.stats.empty())
    expect_output(flags.stats, {flags.in, flags.text, flags.out});
}

int quantize(QuantizeFlags& flags) {
  flags.options.type = *format_named(flags.type);  // one of quantize_types()
  check_files(flags);
  const std::optional<Calibration> calibration = calibration_of(flags);
  flags.options.calibration = calibration ? &*calibration : nullptr;
  double amount = 0;
  {
    const ModelSource source = open_model(flags.in, flags.options.tokenizer).source;
    amount = double(totals_of(source).weights) / 1e6;
  }
  QuantizeReport report;
  {
    ProgressBar bar({amount, "million weights"});
    report = quantize_model(flags.in, flags.out, flags.options, bar.callback());
  }
  flags.json ? put_report_json(flags, report) : put_report(report, flags.options.calibration);
  put_notes(flags.in, report);
  return int(Exit::done);
}

}  // namespace

Action declare_quantize(Flags parser) {
  auto flags = std::make_shared<QuantizeFlags>();
  parser.add("IN", flags->in, "model file or folder")
      .not_empty("a model file or folder")
      .required();
  parser.add("OUT", flags->out, "the .quipu file to write").not_empty("a file to write").required();
  parser
      .add("--type,TYPE", flags->type,
           fmt::format("{} (default q4)", fmt::join(quantize_types(), ", ")))
      .one_of(quantize_types())
      .type("FORMAT");
  parser
      .add("--keep-above", flags->options.keep_above,
           "a tensor that would lose more (relative squared error) keeps more bits (default 0.02)")
      .type("X");
  parser
      .add("--calibrate", flags->text,
           "run the model over this text, and weigh the errors of columns by what comes in there")
      .not_empty("a file of text")
      .type("FILE");
  parser
      .add("--chunks", flags->windows,
           "texts of 512 tokens that --calibrate reads, at most (default 256)")
      .within(1, std::numeric_limits<int>::max())
      .type("N");
  parser
      .add("--stats", flags->stats,
           "what --calibrate measured, saved; without it read (or an imatrix of llama.cpp)")
      .not_empty("a file")
      .type("FILE");
  declare_threads(parser, flags->options.threads);
  declare_tokenizer(parser, flags->options.tokenizer);
  declare_json(parser, flags->json);
  return [flags] { return quantize(*flags); };
}

}  // namespace chaski
