// See quantize.h. First the recipe: the table in front of the file needs every size before a weight
// is written, so errors are estimated on a sample. Then one pass over the weights by the writer's
// threads, which measures the errors that are reported.
#include "engine/quantize/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "engine/quantize/outliers.h"
#include "engine/quantize/tensor_encoder.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/file/quipu_parts.h"
#include "models/architecture.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

using Encoders = std::vector<std::unique_ptr<TensorEncoder>>;

struct Choice {
  Format to;
  std::string reason;
  bool settled;  // not to be raised whatever the error
};

// What the tensors are for, by name. One that is none of its architecture's is a matmul weight if
// it is a matrix.
using Roles = std::unordered_map<std::string, Role>;
Roles roles_in(const ModelSource& in) {
  Roles roles;
  for (TensorSlot& slot : tensors_of(*model_of(in.meta))) roles.emplace(slot.name, slot.role);
  for (const TensorSource& t : in.tensors) roles.emplace(t.info.name, Role::matmul);
  return roles;
}

// What is known of the inputs of each tensor, in their order; null: nothing.
using Inputs = std::vector<const InputSquares*>;
Inputs inputs_of(const ModelSource& in, const Calibration* calibration) {
  Inputs inputs(in.tensors.size());
  if (!calibration) return inputs;
  std::unordered_map<std::string, std::string> names;  // as GGUF files have them
  for (TensorSlot& slot : tensors_of(*model_of(in.meta))) names.emplace(slot.name, slot.gguf);
  for (size_t t = 0; t < inputs.size(); ++t) {
    const TensorInfo& to = in.tensors[t].info;
    const auto name = names.find(to.name);
    if (name == names.end() || !to.tiled()) continue;
    const auto found = calibration->inputs.find(name->second);
    if (found == calibration->inputs.end()) continue;
    inputs[t] = &found->second;
    const InputSquares& squares = found->second;
    if (squares.fit(to)) continue;
    const std::string several =
        squares.experts() > 1 ? fmt::format(" for each of {} experts", squares.experts()) : "";
    fail(Exit::bad_file,
         "{}: tensor {} has {} columns, and the calibration {} numbers for it{}: it is of another "
         "model, expected one of this model, or --calibrate TEXT",
         in.path, escaped(to.name), to.cols, squares.cols, several);
  }
  return inputs;
}

std::vector<std::string> unmatched(const Calibration& calibration, const Inputs& inputs) {
  std::vector<std::string> names;
  for (const auto& [name, squares] : calibration.inputs)
    if (std::find(inputs.begin(), inputs.end(), &squares) == inputs.end()) names.push_back(name);
  return names;
}

// Why errors of a tensor, or of some of its experts, all count the same.
std::string not_weighed(const InputSquares* inputs) {
  if (!inputs) return "not in the calibration";
  const std::vector<int64_t> experts = inputs->too_few();
  if (experts.empty()) return "";
  if (inputs->experts() == 1) return "the calibration has too few tokens, or zeros only";
  return fmt::format("too few tokens, or zeros only, came to experts {}", fmt::join(experts, ", "));
}

// `wanted` costs more than the user asked for. Where the tensor's own format costs no more than
// that, nothing is gained by encoding.
Choice no_more_than_own(const TensorInfo& in, Format wanted, const std::string& reason) {
  if (info(wanted).bits() < info(in.format).bits()) return {wanted, reason, false};
  return {in.format, reason, true};
}

Choice first_choice(const TensorInfo& in, Role role, Format type) {
  if (!in.tiled())
    return {Format::f32, type == Format::f32 ? "" : "norms and biases keep f32", true};
  if (in.format == type) return {type, "", true};
  if (role == Role::position_table) return {in.format, "the position table keeps its own", true};
  if (role == Role::outliers) return {in.format, "outlier columns keep their own", true};
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

// What a recipe says.
Choice chosen(const TensorInfo& in, Format to, Format type, const std::string& file) {
  if (to != in.format && (!can_encode(to) || in.cols % info(to).block != 0))
    fail(
        Exit::usage,
        "{}: the recipe has {} for tensor {} of {} columns, expected a type of --type whose blocks "
        "they fill",
        file, info(to).name, escaped(in.name), in.cols);
  return {to, to == type ? "" : "as the recipe has it", true};
}

Choice raised(const TensorInfo& in, Format from, double error) {
  const Format better = from == Format::q2 || from == Format::q3       ? Format::q4
                        : from == Format::q2_k || from == Format::q3_k ? Format::q4_k
                        : info(from).bits() < info(Format::q8).bits()  ? Format::q8
                        : info(from).bits() < 16                       ? Format::f16
                                                                       : Format::f32;
  return no_more_than_own(in, better, fmt::format("{} would lose {:.2g}", info(from).name, error));
}

// Which strips of a tensor stand for all of them: at most kSample, evenly spread. A 4-bit search
// over every weight, twice, would double the time; a tensor that suffers does so in more than a few
// rows. Where nothing is searched for, the sample would be a quarter of the work, and is smaller.
constexpr int64_t kSample = 16, kFastSample = 4;

// A tensor made of the sampled strips only, as encoded.
TensorSource sample_of(TensorEncoder& encoder, int64_t most) {
  const TensorInfo& in = encoder.from();
  const int64_t all = strips_of(in), n = std::min(most, all);
  const size_t stride = strip_bytes(encoder.to(), in.cols);
  const TensorInfo small{in.name, encoder.to(), n * kStrip, in.cols};
  return {small, [&encoder, all, n, stride](int64_t first, int64_t last, std::byte* dst) {
            for (int64_t i = first; i < last; ++i, dst += stride) encoder.encode(i * all / n, dst);
          }};
}

// The error that each unsettled choice would make, by the threads that load a model; 0 for the
// others.
std::vector<double> estimate(const ModelSource& in, const std::vector<Choice>& choices,
                             const Inputs& inputs, RoundingMethod method, int threads) {
  Encoders encoders(choices.size());
  ModelSource samples{in.path, in.kind, {}, {}, {}};
  for (size_t t = 0; t < choices.size(); ++t) {
    if (choices[t].settled) continue;
    encoders[t] = std::make_unique<TensorEncoder>(in.tensors[t], choices[t].to, in.path,
                                                  Rounding{inputs[t], nullptr, method});
    samples.tensors.push_back(
        sample_of(*encoders[t], method == RoundingMethod::fast ? kFastSample : kSample));
  }
  load(samples, threads);
  std::vector<double> errors;
  for (const auto& encoder : encoders) errors.push_back(encoder ? encoder->error() : 0);
  return errors;
}

double keep_above(const QuantizeOptions& options) {
  return options.keep_above.value_or(usual_keep_above(options.type));
}

std::vector<Choice> recipe(const ModelSource& in, const QuantizeOptions& options,
                           const Inputs& inputs, int threads) {
  const Roles roles = roles_in(in);
  std::vector<Choice> choices;
  for (const TensorSource& tensor : in.tensors) {
    const auto given = options.recipe.find(tensor.info.name);
    choices.push_back(given != options.recipe.end()
                          ? chosen(tensor.info, given->second, options.type, in.path)
                          : first_choice(tensor.info, roles.at(tensor.info.name), options.type));
  }
  const RoundingMethod method =
      options.method == RoundingMethod::fast ? RoundingMethod::fast : RoundingMethod::search;
  const auto unsettled = [](const Choice& choice) { return !choice.settled; };
  while (std::any_of(choices.begin(), choices.end(), unsettled)) {
    const std::vector<double> errors = estimate(in, choices, inputs, method, threads);
    for (size_t t = 0; t < choices.size(); ++t) {
      if (choices[t].settled) continue;
      if (errors[t] <= keep_above(options))  // also false for NaN: out of range
        choices[t].settled = true;
      else
        choices[t] = raised(in.tensors[t].info, choices[t].to, errors[t]);
    }
  }
  return choices;
}

// Which weights can be rounded with feedback, in the order of the file.
std::vector<TensorInfo> fed_back(const ModelSource& in, const std::vector<Choice>& choices,
                                 const Inputs& inputs) {
  std::vector<TensorInfo> weights;
  for (size_t t = 0; t < choices.size(); ++t)
    if (inputs[t] && inputs[t]->experts() == 1 && inputs[t]->too_few().empty() &&
        feeds_back(choices[t].to) && choices[t].to != in.tensors[t].info.format)
      weights.push_back(in.tensors[t].info);
  return weights;
}

ModelSource encoded(const ModelSource& in, const std::vector<Choice>& choices, const Inputs& inputs,
                    const QuantizeOptions& options, Encoders& encoders) {
  ModelSource out{in.path, in.kind, in.meta, {}, in.storage};
  Feedbacks* const feedbacks =
      options.method == RoundingMethod::search ? nullptr : options.feedbacks;
  if (feedbacks) feedbacks->expect(fed_back(in, choices, inputs));
  for (size_t t = 0; t < choices.size(); ++t) {
    TensorEncoder& encoder = *encoders.emplace_back(std::make_unique<TensorEncoder>(
        in.tensors[t], choices[t].to, in.path, Rounding{inputs[t], feedbacks, options.method}));
    TensorInfo to = in.tensors[t].info;
    to.format = choices[t].to;
    const uint64_t stride = to.bytes() / strips_of(to);
    out.tensors.push_back({to, [&encoder, stride](int64_t first, int64_t last, std::byte* dst) {
                             for (int64_t s = first; s < last; ++s, dst += stride)
                               encoder.encode_in_range(s, dst);
                           }});
  }
  return out;
}

// A model with outliers apart, whose inputs are divided where that loses less, and what is then
// known of them.
struct Divided {
  ModelSource source;
  Inputs inputs;
  Awq awq = {};
  std::map<size_t, std::vector<int64_t>> outliers = {};  // columns, by tensor
  std::deque<InputSquares> squares = {};                 // of which some of `inputs` are
};

// Leaves zeros where outliers were.
void set_aside(Divided& all, const std::vector<Choice>& choices, double above) {
  if (has_outliers(all.source))
    fail(Exit::usage, "{}: outliers are set aside already, expected a model without for --outliers",
         all.source.path);
  const std::set<std::string> able = can_set_aside(all.source);
  for (size_t t = 0; t < choices.size(); ++t) {
    TensorSource& tensor = all.source.tensors[t];
    const InputSquares* inputs = all.inputs[t];
    if (!inputs || inputs->experts() != 1 || !inputs->too_few().empty() ||
        choices[t].to == tensor.info.format || info(choices[t].to).block == 1 ||
        !able.count(tensor.info.name))
      continue;
    std::vector<int64_t> columns = outliers_of(*inputs, above);
    if (columns.empty()) continue;
    tensor = without_columns(TensorSource(tensor), columns);
    all.inputs[t] = &all.squares.emplace_back(without_columns(*inputs, columns));
    all.outliers.emplace(t, std::move(columns));
  }
}

// The outliers of `source`, behind all tensors, divided as the weights that they are of.
void add_outliers(Divided& all, const ModelSource& source, std::vector<Choice>& choices) {
  for (const auto& [t, columns] : all.outliers) {
    const TensorSource& weight = source.tensors[t];
    const auto by = all.awq.scales.find(weight.info.name);
    all.source.tensors.push_back(
        columns_alone(by == all.awq.scales.end() ? weight : scaled(weight, by->second), columns));
    all.source.tensors.push_back(column_numbers(weight.info, columns));
    const bool bfloat = weight.info.format == Format::bf16;
    choices.push_back({bfloat ? Format::bf16 : Format::f16, "outliers", true});
    choices.push_back({Format::f32, "numbers of columns", true});
  }
  all.inputs.resize(choices.size());
}

// What comes into weights that stays there; nothing of outliers does.
Feedbacks::Divisors divisors_of(const Divided& all) {
  Feedbacks::Divisors divisors;
  for (const auto& [name, by] : all.awq.scales)
    if (!by.columns.empty()) divisors[name] = by.columns;
  for (const auto& [t, columns] : all.outliers) {
    std::vector<float>& by = divisors[all.source.tensors[t].info.name];
    by.resize(size_t(all.source.tensors[t].info.cols), 1);
    for (const int64_t c : columns) by[size_t(c)] = std::numeric_limits<float>::infinity();
  }
  return divisors;
}

void divide(Divided& all, const std::vector<Choice>& choices, int threads) {
  std::vector<AwqTensor> tensors;
  for (size_t t = 0; t < choices.size(); ++t) tensors.push_back({choices[t].to, all.inputs[t]});
  all.awq = search_awq(all.source, tensors, threads);
  for (size_t t = 0; t < choices.size(); ++t) {
    TensorSource& tensor = all.source.tensors[t];
    const auto found = all.awq.scales.find(tensor.info.name);
    if (found == all.awq.scales.end()) continue;
    tensor = scaled(TensorSource(tensor), found->second);
    if (all.inputs[t] && !found->second.columns.empty())
      all.inputs[t] = &all.squares.emplace_back(scaled(*all.inputs[t], found->second.columns));
  }
}

QuantizeReport report_of(const ModelSource& in, const ModelSource& out,
                         const std::vector<Choice>& choices, const Inputs& inputs,
                         const Encoders& encoders, const Calibration* calibration,
                         const std::vector<char>& kept) {
  QuantizeReport report;
  report.kept = size_t(std::count(kept.begin(), kept.end(), 1));
  if (calibration) report.unmatched = unmatched(*calibration, inputs);
  for (size_t t = 0; t < encoders.size(); ++t) {
    const TensorInfo& to = out.tensors[t].info;
    const bool added = t >= in.tensors.size();  // outliers
    const TensorInfo& from = added ? to : in.tensors[t].info;
    report.tensors.push_back({from.name,
                              from.format,
                              to.format,
                              added ? 0 : from.bytes(),
                              to.bytes(),
                              encoders[t]->error(),
                              choices[t].reason,
                              false,
                              "",
                              encoders[t]->outputs(),
                              {},
                              0});
    report.bytes_before += report.tensors.back().bytes_before, report.bytes_after += to.bytes();
    if (from.format == to.format) continue;
    if (calibration && weighs_columns(to.format)) {
      QuantizedTensor& row = report.tensors.back();
      row.not_weighed = not_weighed(inputs[t]);
      row.weighed = inputs[t] && int64_t(inputs[t]->too_few().size()) < inputs[t]->experts();
    }
    if (!kept[t]) report.weights += from.rows * from.cols;
    report.encode_seconds += encoders[t]->seconds();
  }
  return report;
}

// By number, so that two of them are the same or not.
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
  // To be raised when an encoder writes other bytes than it did.
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

// The report, as it is kept in the file. A tensor that keeps its format keeps what was said of it.
void put_errors(const Metadata& in, Metadata& meta, const Encoders& encoders) {
  const auto put = [&](const char* key, const auto& of) {
    const Floats& old = in.floats(key);
    std::vector<double> all;
    for (const auto& encoder : encoders)
      all.push_back(encoder->from().format != encoder->to() ? of(*encoder)
                    : old.size() == encoders.size()         ? old[all.size()]
                                                            : 0);
    meta.set_floats(key, all);
  };
  put("quantize.errors", [](const TensorEncoder& e) { return e.error(); });
  if (const std::string how = meta.str("quantize.method", ""); how.empty() || how == "awq") return;
  put("quantize.output_errors", [](const TensorEncoder& e) { return e.outputs().lost(); });
  put("quantize.search_errors", [](const TensorEncoder& e) { return e.outputs().search; });
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

bool heeds_inputs(Format format) { return weighs_columns(format) || feeds_back(format); }

void expect_output(const std::string& out, const std::vector<std::string>& read) {
  for (const std::string& in : read)
    if (!in.empty()) refuse_same_file(in, out);
  // What stands in its way is said now. What a killed run left there goes when there is something
  // to write in its place.
  AtomicFile{out, Leftover::adopt};
}

bool is_unfinished(const std::string& out) { return has_leftover(out); }

void expect_quantizable(const QuantizeOptions& options, const std::string& in,
                        const std::string& out) {
  if (!can_encode(options.type))
    fail(Exit::usage, "--type is {}, expected one chaski can encode: {}", info(options.type).name,
         fmt::join(quantize_types(), ", "));
  if (!(keep_above(options) >= 0))
    fail(Exit::usage, "--keep-above is {}, expected 0 or more", keep_above(options));
  if (out.ends_with(".gguf"))
    fail(Exit::usage,
         "{}: quantize writes .quipu files, expected such a name (chaski convert makes a GGUF file "
         "of one)",
         out);
  expect_output(out, {in});
}

QuantizeReport quantize_model(const std::string& in, const std::string& out,
                              const QuantizeOptions& asked, const OnProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  QuantizeOptions options = asked;
  expect_quantizable(options, in, out);
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  const ModelSource source = open_model(in, options.tokenizer).source;
  if (source.verify) source.verify(threads);  // or damage would get a sum of its own
  const Inputs inputs = inputs_of(source, options.calibration);
  std::vector<Choice> choices = recipe(source, options, inputs, threads);
  if (options.feedbacks && fed_back(source, choices, inputs).empty()) {
    if (options.method == RoundingMethod::gptq && options.notice)
      options.notice(
          fmt::format("{}: nothing is rounded with feedback, as weights in {} cannot be; they are "
                      "searched for",
                      in, info(options.type).name));
    options.feedbacks = nullptr;
  }
  Divided divided{source, inputs};
  if (options.outliers > 0) set_aside(divided, choices, options.outliers);
  if (options.awq) divide(divided, choices, threads);
  if (options.feedbacks) options.feedbacks->divide(divisors_of(divided));
  add_outliers(divided, source, choices);
  Encoders encoders;
  ModelSource target = encoded(divided.source, choices, divided.inputs, options, encoders);
  target.meta.set_str("quantize.type", std::string(info(options.type).name));
  if (options.feedbacks)
    target.meta.set_str("quantize.method",
                        options.method == RoundingMethod::gptq ? "gptq" : "auto");
  if (options.awq) target.meta.set_str("quantize.method", options.feedbacks ? "awq+gptq" : "awq");
  if (options.outliers > 0) target.meta.set_float("quantize.outliers", options.outliers);
  if (const Calibration* c = options.calibration) {
    target.meta.set_str("quantize.calibration.text", c->text);
    target.meta.set_str("quantize.calibration.xxh3", c->hash);
    if (c->tokens > 0) target.meta.set_int("quantize.calibration.tokens", c->tokens);
  }
  put_errors(source.meta, target.meta, encoders);
  // What is copied takes next to no time beside what is encoded.
  const auto encoded_in = [&](size_t t, uint64_t bytes) {
    const TensorInfo &from = encoders[t]->from(), &to = target.tensors[t].info;
    return from.format == to.format
               ? 0
               : double(from.rows * from.cols) * double(bytes) / double(to.bytes());
  };
  FileProgress last;
  double encoded = 0;
  for (size_t t = 0; t < encoders.size(); ++t) {
    const uint64_t bytes = target.tensors[t].info.bytes();
    last.total += bytes, last.to_encode += uint64_t(encoded_in(t, bytes));
  }
  std::mutex showing;
  std::vector<char> kept(encoders.size());
  Parts parts;
  parts.made_with = {{"other settings", sum_of_settings(options)},
                     {"another calibration", sum_of_calibration(options)}};
  parts.resume = options.resume, parts.note = options.notice;
  parts.notes = [&](size_t t) { return packed(encoders[t]->notes()); };
  parts.kept = [&](size_t t, const TensorNotes& notes) {
    const std::string& name = encoders[t]->from().name;
    if (!encoders[t]->recall(unpacked(notes)))
      fail(Exit::usage,
           "{}: tensor {} has changed since it was quantized for {}, expected the same to go on "
           "(without --resume all is made anew)",
           in, escaped(name), out);
    if (options.feedbacks) options.feedbacks->forget(name);
    const std::lock_guard lock(showing);
    const uint64_t bytes = target.tensors[t].info.bytes();
    last.done += bytes, encoded += encoded_in(t, bytes), last.encoded = uint64_t(encoded + 0.5);
    kept[t] = 1;
  };
  const auto show = [&](const std::string& what) {
    if (progress) progress({what, last.done, last.total, last.encoded, last.to_encode});
  };
  if (options.feedbacks)
    options.feedbacks->on_read = [&](int read, int windows) {
      const std::lock_guard lock(showing);
      show(fmt::format("inputs, window {} of {}", read, windows));
    };
  write_quipu_in_parts(
      out, target, threads, parts,
      [&](size_t tensor, uint64_t done, uint64_t total) {
        const std::lock_guard lock(showing);
        encoded += encoded_in(tensor, done - last.done);
        last.done = done, last.total = total, last.encoded = uint64_t(encoded + 0.5);
        show(target.tensors[tensor].info.name);
      },
      [&](Metadata& meta) { put_errors(source.meta, meta, encoders); });
  QuantizeReport report =
      report_of(source, target, choices, inputs, encoders, options.calibration, kept);
  for (QuantizedTensor& row : report.tensors)
    if (const auto found = divided.awq.powers.find(row.name); found != divided.awq.powers.end())
      row.inputs = found->second;
  for (const auto& [t, columns] : divided.outliers) report.tensors[t].outliers = columns.size();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace chaski
