// See quantize.h. First the formats are chosen: the table at the beginning of the file needs every
// size before a weight is written, so errors are estimated on a sample. Then the writer's threads
// encode each weight once and measure the errors that are reported.
#include "engine/quantize/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>

#include "engine/quantize/mixture.h"
#include "engine/quantize/outliers.h"
#include "engine/quantize/weight_job.h"
#include "engine/shelf/model_file.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/file/chunks.h"
#include "ggml-like-tensor/file/quipu_parts.h"
#include "ggml-like-tensor/file/value_io.h"
#include "models/import/gguf/gguf.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

// What the inputs of weights are divided by, column by column. Nothing of an outlier's input stays
// with the weight, so its divisor is infinite.
Feedbacks::Divisors divisors_of(const WeightJobs& jobs) {
  Feedbacks::Divisors divisors;
  for (const WeightJob& job : jobs) {
    const std::string& name = job.source.info.name;
    if (!job.scales.columns.empty()) divisors[name] = job.scales.columns;
    if (job.outliers.empty()) continue;
    std::vector<float>& by = divisors[name];
    by.resize(size_t(job.source.info.cols), 1);
    for (const int64_t c : job.outliers) by[size_t(c)] = std::numeric_limits<float>::infinity();
  }
  return divisors;
}

void make_encoders(WeightJobs& jobs, const QuantizeOptions& options, const std::string& file) {
  Feedbacks* const feedbacks =
      options.method == RoundingMethod::search ? nullptr : options.feedbacks;
  if (feedbacks) feedbacks->expect(weights_with_feedback(jobs));
  for (WeightJob& job : jobs)
    job.encoder = std::make_unique<TensorEncoder>(
        job.source, job.choice.to, file, Rounding{job.known_inputs(), feedbacks, options.method});
}

// What the file says about how it was made.
void put_settings(const QuantizeOptions& options, Metadata& meta) {
  meta.set_str("quantize.type", std::string(info(options.type).name));
  if (options.file_type >= 0)
    meta.set("gguf.general.file_type",
             {ValueType::u32, ValueType::i64, int64_t(options.file_type)});
  else
    meta.erase("gguf.general.file_type");  // that of the source
  if (options.feedbacks)
    meta.set_str("quantize.method", options.method == RoundingMethod::gptq ? "gptq" : "auto");
  if (options.awq) meta.set_str("quantize.method", options.feedbacks ? "awq+gptq" : "awq");
  if (options.outliers > 0) meta.set_float("quantize.outliers", options.outliers);
  if (const Calibration* c = options.calibration) {
    meta.set_str("quantize.calibration.text", c->text);
    meta.set_str("quantize.calibration.xxh3", c->hash);
    if (c->tokens > 0) meta.set_int("quantize.calibration.tokens", c->tokens);
  }
}

// A checksum of settings or data, so that a later run can compare its own with it.
class Summary {
 public:
  template <class T>
  Summary& add(const std::vector<T>& numbers) {
    return add(std::string_view(reinterpret_cast<const char*>(numbers.data()),
                                numbers.size() * sizeof(T)));
  }
  Summary& add(std::string_view text) {
    text_ += fmt::format("{:016x}.{:016x}|", text.size(), checksum(text.data(), text.size()));
    return *this;
  }
  uint64_t sum() const { return checksum(text_.data(), text_.size()); }

 private:
  std::string text_;
};

uint64_t sum_of_settings(const QuantizeOptions& options) {
  // Increase it when an encoder writes different bytes than before.
  constexpr int kEncoders = 1;
  Summary all;
  all.add(fmt::format("{} {} {} {} {} {}", kEncoders, info(options.type).name, keep_above(options),
                      int(options.method), options.awq, options.outliers));
  for (const auto& [name, format] : options.recipe) all.add(name).add(info(format).name);
  return all.sum();
}

uint64_t sum_of_calibration(const QuantizeOptions& options) {
  Summary all;
  if (const Feedbacks* feedbacks = options.feedbacks)
    all.add(fmt::format("{} {}", feedbacks->text().hash, feedbacks->text().windows));
  if (const Calibration* calibration = options.calibration) {
    all.add(calibration->text).add(calibration->hash).add(fmt::format("{}", calibration->tokens));
    for (const auto& [name, squares] : calibration->inputs)
      all.add(name).add(squares.sums).add(squares.tokens);
  }
  return all.sum();
}

TensorNotes packed(const TensorEncoder::Notes& notes) {
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  const TensorEncoder::Outputs& o = notes.outputs;
  return {bits(notes.lost), bits(notes.all),        bits(o.search),
          bits(o.gptq),     uint64_t(o.feeds_back), notes.read};
}

TensorEncoder::Notes unpacked(const TensorNotes& notes) {
  const auto number = [&](size_t i) { return std::bit_cast<double>(notes[i]); };
  return {number(0), number(1), {number(2), number(3), notes[4] != 0}, notes[5]};
}

constexpr std::array kErrorKeys = {"quantize.errors", "quantize.output_errors",
                                   "quantize.search_errors"};

// The errors of the report, which are kept in the file too. A tensor that keeps its format keeps
// the error that the input file has for it.
void put_errors(const Metadata& in, const WeightJobs& jobs, Metadata& meta) {
  const auto put = [&](const char* key, const auto& of) {
    const Floats& old = in.floats(key);
    std::vector<double> all;
    for (const WeightJob& job : jobs)
      all.push_back(job.source.info.format != job.choice.to ? of(*job.encoder)
                    : old.size() == jobs.size()             ? old[all.size()]
                                                            : 0);
    meta.set_floats(key, all);
  };
  put(kErrorKeys[0], [](const TensorEncoder& e) { return e.error(); });
  if (const std::string how = meta.str("quantize.method", ""); how.empty() || how == "awq") return;
  put(kErrorKeys[1], [](const TensorEncoder& e) { return e.outputs().lost(); });
  put(kErrorKeys[2], [](const TensorEncoder& e) { return e.outputs().search; });
}

// The file to write: its tensors are made by the jobs' encoders, which outlive it.
ModelSource target_of(const ModelSource& in, const WeightJobs& jobs,
                      const QuantizeOptions& options) {
  ModelSource out{in.path, in.kind, in.meta, {}, in.storage};
  for (const WeightJob& job : jobs) {
    TensorInfo to = job.source.info;
    to.format = job.choice.to;
    const uint64_t stride = to.bytes() / strips_of(to);
    out.tensors.push_back(
        {to, [encoder = job.encoder.get(), stride](int64_t first, int64_t last, std::byte* dst) {
           for (int64_t s = first; s < last; ++s, dst += stride) encoder->encode_in_range(s, dst);
         }});
  }
  put_settings(options, out.meta);
  put_errors(in.meta, jobs, out.meta);
  return out;
}

// Counts bytes that were written and weights that were encoded, from any thread. A tensor that is
// copied takes next to no time compared with one that is encoded, so it counts as no weights.
class ProgressCount {
 public:
  ProgressCount(const WeightJobs& jobs, const ModelSource& target, const OnProgress& report)
      : jobs_(jobs), target_(target), report_(report) {
    for (size_t i = 0; i < jobs.size(); ++i)
      now_.total += bytes(i), now_.to_encode += uint64_t(weights_in(i, bytes(i)));
  }

  void kept(size_t i) {
    const std::lock_guard lock(guard_);
    add(i, bytes(i));
  }
  void wrote(size_t i, uint64_t done, uint64_t total) {
    const std::lock_guard lock(guard_);
    add(i, done - now_.done), now_.total = total;
    show(target_.tensors[i].info.name);
  }
  void read_window(int read, int windows) {
    const std::lock_guard lock(guard_);
    show(fmt::format("inputs, window {} of {}", read, windows));
  }

 private:
  uint64_t bytes(size_t i) const { return target_.tensors[i].info.bytes(); }
  double weights_in(size_t i, uint64_t some) const {
    const TensorInfo& from = jobs_[i].source.info;
    return from.format == jobs_[i].choice.to
               ? 0
               : double(from.rows * from.cols) * double(some) / double(bytes(i));
  }
  void add(size_t i, uint64_t some) {
    now_.done += some, encoded_ += weights_in(i, some), now_.encoded = uint64_t(encoded_ + 0.5);
  }
  void show(const std::string& what) const {
    if (report_) report_({what, now_.done, now_.total, now_.encoded, now_.to_encode});
  }

  const WeightJobs& jobs_;
  const ModelSource& target_;
  const OnProgress& report_;
  std::mutex guard_;
  FileProgress now_;
  double encoded_ = 0;
};

void write(const ModelSource& in, const ModelSource& target, WeightJobs& jobs,
           const QuantizeOptions& options, const std::string& out, int threads,
           const OnProgress& progress) {
  ProgressCount count(jobs, target, progress);
  Parts parts;
  parts.made_with = {{"other settings", sum_of_settings(options)},
                     {"another calibration", sum_of_calibration(options)}};
  parts.resume = options.resume, parts.note = options.notice;
  parts.notes = [&](size_t i) { return packed(jobs[i].encoder->notes()); };
  parts.kept = [&](size_t i, const TensorNotes& notes) {
    const std::string& name = jobs[i].source.info.name;
    if (!jobs[i].encoder->recall(unpacked(notes)))
      fail(Exit::usage,
           "{}: tensor {} has changed since an earlier run quantized it for {}, expected the same "
           "tensor (without --resume, all tensors are quantized again)",
           in.path, escaped(name), out);
    if (options.feedbacks) options.feedbacks->skip(name);
    jobs[i].kept = true;
    count.kept(i);
  };
  if (options.feedbacks)
    options.feedbacks->on_read = [&](int read, int windows) { count.read_window(read, windows); };
  write_quipu_in_parts(
      out, target, threads, parts,
      [&](size_t i, uint64_t done, uint64_t total) { count.wrote(i, done, total); },
      [&](Metadata& meta) { put_errors(in.meta, jobs, meta); });
}

// Tensors of the calibration that the model does not have.
std::vector<std::string> unmatched(const Calibration& calibration, const WeightJobs& jobs) {
  std::set<const InputSquares*> found;
  for (const WeightJob& job : jobs) found.insert(job.measured);
  std::vector<std::string> names;
  for (const auto& [name, squares] : calibration.inputs)
    if (!found.count(&squares)) names.push_back(name);
  return names;
}

// Why the errors of a tensor, or of some of its experts, all count the same.
std::string not_weighed(const InputSquares* inputs) {
  if (!inputs) return "not in the calibration";
  const std::vector<int64_t> experts = inputs->too_few();
  if (experts.empty()) return "";
  if (inputs->experts() == 1) return "the calibration has too few tokens, or zeros only";
  return fmt::format("too few tokens, or zeros only, came to experts {}", fmt::join(experts, ", "));
}

// What is known before the weight is encoded.
QuantizedTensor planned_row(const WeightJob& job) {
  const TensorInfo& from = job.from();
  TensorInfo to = from;
  to.format = job.choice.to;
  QuantizedTensor row;
  row.name = from.name;
  row.from = job.original ? from.format : to.format, row.to = to.format;
  row.bytes_before = job.original ? from.bytes() : 0, row.bytes_after = to.bytes();
  row.reason = job.choice.reason;
  return row;
}

QuantizedTensor row_of(const WeightJob& job, const Calibration* calibration) {
  QuantizedTensor row = planned_row(job);
  row.error = job.encoder->error();
  row.outputs = job.encoder->outputs(), row.searched = job.encoder->searched();
  row.inputs = job.power, row.outliers = job.outliers.size();
  if (row.from != row.to && calibration && weighs_columns(row.to)) {
    row.not_weighed = not_weighed(job.measured);
    row.weighed = job.measured && int64_t(job.measured->too_few().size()) < job.measured->experts();
  }
  return row;
}

QuantizeReport report_of(const WeightJobs& jobs, const Calibration* calibration) {
  QuantizeReport report;
  if (calibration) report.unmatched = unmatched(*calibration, jobs);
  for (const WeightJob& job : jobs) {
    const QuantizedTensor& row = report.tensors.emplace_back(row_of(job, calibration));
    report.bytes_before += row.bytes_before, report.bytes_after += row.bytes_after;
    report.kept += job.kept;
    if (row.from == row.to) continue;
    if (!job.kept) report.weights += uint64_t(job.from().rows * job.from().cols);
    report.encode_seconds += job.encoder->seconds();
  }
  return report;
}

bool is_gguf(const std::string& out) { return out.ends_with(".gguf"); }

// The .quipu file from which a GGUF file is made.
std::string part_of(const std::string& out) { return out + ".quipu"; }

std::vector<std::string> types_of_gguf() {
  std::vector<std::string> names;
  for (const Format f : encodable_formats())
    if (info(f).gguf_type >= 0) names.emplace_back(info(f).name);
  return names;
}

}  // namespace

double usual_keep_above(Format type) {
  if (type == Format::q2 || type == Format::q2_k) return 0.2;
  return type == Format::q3 || type == Format::q3_k ? 0.06 : 0.02;
}

std::vector<std::string> quantize_types() {
  std::vector<std::string> names;
  for (const Format f : encodable_formats()) names.emplace_back(info(f).name);
  return names;
}

bool uses_inputs(Format format) { return weighs_columns(format) || feeds_back(format); }

void expect_output(const std::string& out, const std::vector<std::string>& read) {
  for (const std::string& in : read)
    if (!in.empty()) refuse_same_file(in, out);
  // Reports now what would prevent writing. Leftovers of a killed run are removed only when there
  // is something to write in their place.
  AtomicFile{out, Leftover::adopt};
}

void expect_quantizable(const QuantizeOptions& options, const std::string& in,
                        const std::string& out) {
  if (!can_encode(options.type))
    fail(Exit::usage, "--type is {}, expected one that chaski can write: {}",
         info(options.type).name, fmt::join(quantize_types(), ", "));
  if (!(keep_above(options) >= 0))
    fail(Exit::usage, "--keep-above is {}, expected 0 or more", keep_above(options));
  if (is_gguf(out)) {
    if (info(options.type).gguf_type < 0)
      fail(Exit::usage,
           "{}: {} is chaski's own format, expected one that GGUF files have ({}), a mixture ({}), "
           "or a name that ends in .quipu",
           out, info(options.type).name, fmt::join(types_of_gguf(), ", "),
           fmt::join(mixture_names(), ", "));
    if (options.outliers > 0)
      fail(Exit::usage, "{}: GGUF has no outlier columns, expected no --outliers", out);
  }
  expect_output(out, {in});
  expect_replaceable(out);
  if (is_gguf(out)) expect_output(part_of(out), {in});
}

uint64_t overhead_of(const ModelSource& source, const QuantizeOptions& options) {
  Metadata meta = source.meta;
  put_settings(options, meta);
  const std::vector<double> errors(source.tensors.size());
  for (const char* key : kErrorKeys) meta.set_floats(key, errors);
  std::vector<TableRow> table;
  for (const TensorSource& tensor : source.tensors) table.push_back({tensor.info});
  return header_bytes(meta, table) + source.tensors.size() * kTensorAlign;
}

namespace {

// Throws Error(usage) if the recipe has a format that the file `out` cannot have.
void expect_possible_recipe(const QuantizeOptions& options, const std::string& out) {
  for (const auto& [tensor, format] : options.recipe)
    if (is_gguf(out) && info(format).gguf_type < 0)
      fail(Exit::usage,
           "{}: the recipe has {} for tensor {}, expected a format that GGUF files have ({}), or a "
           "name that ends in .quipu",
           out, info(format).name, escaped(tensor), fmt::join(types_of_gguf(), ", "));
}

QuantizeReport quantize_to_gguf(const ModelSource& source, WeightJobs jobs, const std::string& out,
                                const QuantizeOptions& options, const OnProgress& progress) {
  expect_possible_recipe(options, out);
  const std::string part = part_of(out);
  const QuantizeReport report = quantize_model(source, std::move(jobs), part, options, progress);
  std::error_code ignored;
  try {
    convert_model(open_model(part, {}).source, out, options.threads, {});
  } catch (...) {
    std::filesystem::remove(part, ignored);
    throw;
  }
  std::filesystem::remove(part, ignored);
  return report;
}

}  // namespace

std::vector<QuantizedTensor> planned_tensors(const ModelSource& source, WeightJobs jobs,
                                             const std::string& out,
                                             const QuantizeOptions& options) {
  expect_possible_recipe(options, out);
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  if (options.calibration) add_inputs(jobs, *options.calibration, source.path);
  choose_formats(jobs, options, source.path, threads);
  if (options.outliers > 0) set_outliers_aside(source, jobs, options.outliers);
  add_outlier_jobs(jobs);
  std::vector<QuantizedTensor> rows;
  for (const WeightJob& job : jobs) rows.push_back(planned_row(job));
  return rows;
}

QuantizeReport quantize_model(const ModelSource& source, WeightJobs jobs, const std::string& out,
                              const QuantizeOptions& asked, const OnProgress& progress) {
  if (is_gguf(out)) return quantize_to_gguf(source, std::move(jobs), out, asked, progress);
  const auto start = std::chrono::steady_clock::now();
  QuantizeOptions options = asked;
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  if (source.verify) source.verify(threads);  // or damaged weights would get a valid checksum
  if (options.calibration) add_inputs(jobs, *options.calibration, source.path);
  choose_formats(jobs, options, source.path, threads);
  if (options.feedbacks && weights_with_feedback(jobs).empty()) {
    if (options.method == RoundingMethod::gptq && options.notice)
      options.notice(
          fmt::format("{}: weights in {} cannot be rounded with feedback, so --method gptq "
                      "searches for them",
                      source.path, info(options.type).name));
    options.feedbacks = nullptr;
  }
  if (options.outliers > 0) set_outliers_aside(source, jobs, options.outliers);
  if (options.awq) scale_inputs(source, jobs, threads);
  if (options.feedbacks) options.feedbacks->divide(divisors_of(jobs));
  add_outlier_jobs(jobs);
  make_encoders(jobs, options, source.path);
  const ModelSource target = target_of(source, jobs, options);
  write(source, target, jobs, options, out, threads, progress);
  QuantizeReport report = report_of(jobs, options.calibration);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

QuantizeReport quantize_model(const std::string& in, const std::string& out,
                              const QuantizeOptions& options, const OnProgress& progress) {
  expect_quantizable(options, in, out);
  const OpenModel model = open_model(in, options.tokenizer);
  return quantize_model(model.source, jobs_of(model.source), out, options, progress);
}

}  // namespace chaski
