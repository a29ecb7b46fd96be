#include "engine/quantize/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <unordered_map>

#include "engine/measure/perplexity.h"
#include "engine/passes/pipeline.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/file/chunks.h"
#include "models/import/gguf/gguf.h"
#include "models/import/gguf/gguf_names.h"
#include "models/import/import.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts", kKl = ".kl";
constexpr const char *kText = "chaski.calibration.text", *kHash = "chaski.calibration.xxh3",
                     *kTokens = "chaski.calibration.tokens", *kModel = "chaski.calibration.model";

std::string hash_of(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", checksum(bytes.data(), bytes.size()));
}
std::string name_in(const std::string& path) { return std::filesystem::path(path).filename(); }

constexpr int64_t kBlock = 32;  // columns of an Act

// Columns [first, first + n) of row t of the input of a matmul; `first` is a multiple of kBlock.
void input_columns(const OpArgs& matmul, int64_t t, int64_t first, int64_t n, float* to) {
  // If no weight reads floats, only quantized inputs exist; a code times its scale is exact.
  if (matmul.in[0].data) return void(std::copy_n(matmul.in[0].row(t) + first, n, to));
  for (int64_t c = 0; c < n; c += kBlock) {
    const Act& act = matmul.in_acts.at(t, (first + c) / kBlock);
    if (n - c >= kBlock)  // a loop of known length, which the compiler vectorizes
      for (int64_t i = 0; i < kBlock; ++i) to[c + i] = act.d * float(act.q[i]);
    else
      for (int64_t i = 0; i < n - c; ++i) to[c + i] = act.d * float(act.q[i]);
  }
}

void add_squares(const float* values, int64_t n, double* to) {
  int64_t c = 0;
  for (; c + kBlock <= n; c += kBlock)  // as above
    for (int64_t i = c; i < c + kBlock; ++i) to[i] += double(values[i]) * double(values[i]);
  for (; c < n; ++c) to[c] += double(values[c]) * double(values[c]);
}

// Sums the squares of the inputs of matmuls while plans run: in doubles inside a window, and in
// floats over all windows. So a file with the sums of some windows is all that a later run needs.
class Squares {
 public:
  explicit Squares(int threads, std::map<std::string, InputSquares> before = {})
      : threads_(threads), all_(std::move(before)) {}

  void add(const Plan& plan, size_t step) {
    const Step& s = plan.steps[step];
    if (const auto experts = experts_of(plan, step)) return add_experts(*experts);
    const std::vector<const Weight*> weights = weights_of(plan, step);
    const int64_t rows = s.args.in[0].shape.rows;
    if (weights.empty() || rows == 0) return;
    row_.assign(size_t(s.args.in[0].shape.cols), 0);
    add_rows(s.args, rows);
    for (const Weight* w : weights) {
      Sum& sum = of(*w, 1);
      for (size_t c = 0; c < row_.size(); ++c) sum.squares[c] += row_[c];
      sum.tokens[0] += rows;
    }
  }

  void end_window() {
    std::set<std::string_view> counted;  // a weight may have several views, which read the same
    for (const auto& [weight, sum] : sums_) {
      if (!counted.insert(weight->info.name).second) continue;
      InputSquares& to = all_[weight->info.name];
      to.cols = weight->info.cols;
      to.tokens.resize(sum.tokens.size()), to.sums.resize(sum.squares.size());
      for (size_t e = 0; e < sum.tokens.size(); ++e) to.tokens[e] += sum.tokens[e];
      for (size_t c = 0; c < sum.squares.size(); ++c)
        to.sums[c] = float(double(to.sums[c]) + sum.squares[c]);
    }
    sums_.clear();
  }
  // By our tensor names, over the windows that have ended.
  const std::map<std::string, InputSquares>& all() const { return all_; }

  static const Weight& weight(const Plan& plan, size_t step, size_t in) {
    return *plan.graph().values[size_t(plan.graph().nodes[step].in[in])].weight;
  }

 private:
  struct Sum {
    std::vector<double> squares;
    std::vector<int64_t> tokens;
  };

  Sum& of(const Weight& weight, int experts) {
    Sum& sum = sums_[&weight];
    sum.squares.resize(size_t(experts * weight.info.cols)), sum.tokens.resize(size_t(experts));
    return sum;
  }
  // Columns are shared out among threads: each is summed from the first row to the last.
  void add_rows(const OpArgs& a, int64_t rows) {
    constexpr int64_t kColumns = 256;           // of a thread at once
    constexpr int64_t kFewestValues = 1 << 16;  // fewer take less time than to start a thread
    const int64_t cols = int64_t(row_.size()), parts = (cols + kColumns - 1) / kColumns;
    for_each_job(size_t(parts), rows * cols < kFewestValues ? 1 : threads_, [&](size_t part) {
      const int64_t first = int64_t(part) * kColumns, n = std::min(kColumns, cols - first);
      float values[kColumns];
      for (int64_t t = 0; t < rows; ++t) {
        input_columns(a, t, first, n, values);
        add_squares(values, n, &row_[size_t(first)]);
      }
    });
  }
  void add_row(const OpArgs& a, int64_t t, double* to) {
    values_.resize(size_t(a.in[0].shape.cols));
    input_row(a, t, values_.data());
    add_squares(values_.data(), int64_t(values_.size()), to);
  }
  void add_experts(const ExpertStep& step) {
    const OpArgs& a = step.args;
    for (const Weight* weight : step.weights) {
      Sum& sum = of(*weight, step.op.experts);
      for (int64_t row = 0; row < a.in[2].shape.rows * a.in[2].shape.cols; ++row) {
        const int32_t expert = ExpertMatMul::expert_of(a, row);
        add_row(a, ExpertMatMul::input_of(a, row),
                &sum.squares[size_t(expert * weight->info.cols)]);
        ++sum.tokens[size_t(expert)];
      }
    }
  }

  const int threads_;
  std::map<std::string, InputSquares> all_;
  std::unordered_map<const Weight*, Sum> sums_;  // of this window
  std::vector<double> row_;                      // squares of one step
  std::vector<float> values_;
};

void expect_finite(const Calibration& calibration) {
  for (const auto& [name, in] : calibration.inputs)
    for (const float x : in.sums)
      if (!std::isfinite(x))
        fail(Exit::non_finite, "an input of {} is {}, expected finite numbers", escaped(name), x);
}

}  // namespace

int window_of(const Engine& engine) {
  return std::min(kCalibrationWindow, engine.context_length());
}

bool InputSquares::fit(const TensorInfo& weight) const {
  return cols == weight.cols && weight.rows % experts() == 0 &&
         (experts() == 1 || weight.rows / experts() % kStrip == 0);
}

std::vector<std::vector<float>> InputSquares::factors() const {
  constexpr double kLeast = 1e-4;
  std::vector<std::vector<float>> all(tokens.size());
  for (size_t e = 0; e < all.size(); ++e) {
    const float* of = sums.data() + int64_t(e) * cols;
    double mean = 0;
    for (int64_t c = 0; c < cols; ++c) mean += double(of[c]) / double(cols);
    if (tokens[e] < kFewestTokens || !(mean > 0)) continue;
    for (int64_t c = 0; c < cols; ++c)
      all[e].push_back(float(std::max(double(of[c]) / mean, kLeast)));
  }
  return all;
}

std::vector<int64_t> InputSquares::too_few() const {
  std::vector<int64_t> experts;
  const auto all = factors();
  for (size_t e = 0; e < all.size(); ++e)
    if (all[e].empty()) experts.push_back(int64_t(e));
  return experts;
}

void input_row(const OpArgs& matmul, int64_t t, float* to) {
  input_columns(matmul, t, 0, matmul.in[0].shape.cols, to);
}

std::optional<ExpertStep> experts_of(const Plan& plan, size_t step) {
  const Step& s = plan.steps[step];
  if (const auto* op = std::get_if<ExpertMatMul>(&s.op))
    return ExpertStep{*op, s.args, {&Squares::weight(plan, step, 1)}};
  if (const auto* op = std::get_if<GatedExpertMatMul>(&s.op))
    return ExpertStep{op->plain(),
                      op->plain_args(s.args, 0),
                      {&Squares::weight(plan, step, 1), &Squares::weight(plan, step, 2)}};
  return std::nullopt;
}

std::vector<const Weight*> weights_of(const Plan& plan, size_t step) {
  const auto* matmul = std::get_if<MatMul>(&plan.steps[step].op);
  const bool gated = std::holds_alternative<GatedMatMul>(plan.steps[step].op);
  std::vector<const Weight*> weights;
  for (int i = 0; i < (matmul ? matmul->weights : gated ? 2 : 0); ++i)
    weights.push_back(&Squares::weight(plan, step, size_t(1 + i)));
  return weights;
}

void read_for_inputs(Engine& engine, std::span<const TokenId> tokens, int windows,
                     const std::function<void(const Plan&, size_t step)>& look,
                     const std::function<void(int)>& on_read,
                     const std::optional<LayersRead>& part) {
  const int length = window_of(engine);
  ENSURE(windows <= windows_of(tokens.size(), length), "whole windows");
  struct Watch {
    CpuStage& passes;
    ~Watch() { passes.executor().after_step = {}, passes.only({}); }  // also after an exception
  } const watch{*engine.pipeline().whole_on_cpu()};
  watch.passes.executor().after_step = look;
  const bool begins = engine.has_tokenizer() && engine.tokenizer().adds_bos();
  const auto session = engine.session();
  for (int w = 0; w < windows; ++w) {
    const auto text = tokens.subspan(size_t(w * length), size_t(length));
    std::vector<TokenId> window(text.begin(), text.end());
    if (begins) window[0] = engine.tokenizer().bos();
    session->rewind(0);
    if (part)
      watch.passes.only(
          CpuStage::Part{part->first, part->last, &(*part->rows)[size_t(w)], part->stay});
    const auto logits = session->extend(window, part ? part->outputs : 0);
    if (part && part->on_logits) part->on_logits(w, logits);
    on_read(w + 1);
  }
}

std::map<std::string, InputSquares> measure_inputs(Engine& engine, std::span<const TokenId> tokens,
                                                   int windows,
                                                   const std::function<void(int)>& on_read) {
  Squares squares(engine.threads());
  read_for_inputs(
      engine, tokens, windows, [&](const Plan& plan, size_t step) { squares.add(plan, step); },
      [&](int read) { squares.end_window(), on_read(read); });
  return squares.all();
}

CalibrationText calibration_text(const CalibrationOptions& options, const std::string& name,
                                 std::string_view text) {
  return calibration_text(open_model(options.model, options.tokenizer), options, name, text);
}

CalibrationText calibration_text(const OpenModel& model, const CalibrationOptions& options,
                                 const std::string& name, std::string_view text) {
  EngineOptions o;
  o.model = options.model, o.tokenizer = options.tokenizer, o.threads = options.threads;
  o.device = "cpu";
  const auto known = model_of(model.source.meta)->context;
  o.context = int(std::min<int64_t>(kCalibrationWindow, known));
  CalibrationText result{
      name_in(name), hash_of(std::as_bytes(std::span(text))), Engine::open(model, o), {}, 0};
  result.tokens = result.engine->tokenizer().encode_prompt(text);
  const int length = window_of(*result.engine);
  result.windows = std::min(options.windows, windows_of(result.tokens.size(), length));
  if (result.windows == 0)
    fail(Exit::usage, "{}: the text has {} token{}, expected at least {} (one window)", name,
         result.tokens.size(), result.tokens.size() == 1 ? "" : "s", length);
  return result;
}

std::string model_hash(const CalibrationText& text) {
  constexpr size_t kSample = 4096;
  std::string summed;
  for (const Weight& w : text.engine->weights()->tensors) {
    const TensorInfo& t = w.info;
    const size_t bytes = t.bytes(), sample = std::min(bytes, kSample);
    summed += fmt::format("{} {} {} {}", t.name, info(t.format).name, t.rows, t.cols);
    for (const size_t at : {size_t(0), (bytes - sample) / 2, bytes - sample})
      summed += fmt::format(" {:016x}", checksum(w.data + at, sample));
  }
  return hash_of(std::as_bytes(std::span(summed)));
}

Calibration calibrate(const CalibrationText& text, const OnProgress& progress, Calibration before,
                      const OnMeasured& keep) {
  const auto slots = tensors_of(*model_of(text.engine->meta()));
  const int length = window_of(*text.engine), first = int(before.tokens / length);
  const uint64_t all = uint64_t(text.windows) * uint64_t(length);
  Calibration result{text.name, text.hash, before.tokens, {}, {}, model_hash(text)};
  std::map<std::string, InputSquares> ours;
  for (const TensorSlot& slot : slots)
    if (const auto found = before.inputs.find(slot.gguf); found != before.inputs.end())
      ours.emplace(slot.name, std::move(found->second));
  Squares squares(text.engine->threads(), std::move(ours));
  const auto take = [&] {
    for (const TensorSlot& slot : slots)
      if (const auto found = squares.all().find(slot.name); found != squares.all().end())
        result.inputs.insert_or_assign(slot.gguf, found->second);
  };
  const int batch = text.engine->batch_length(), passes = (length + batch - 1) / batch;
  int read = first, pass = 0;  // windows; passes of this window
  read_for_inputs(
      *text.engine, std::span(text.tokens).subspan(size_t(first * length)), text.windows - first,
      [&](const Plan& plan, size_t step) {
        squares.add(plan, step);
        const uint64_t steps = plan.steps.size(), done = uint64_t(pass) * steps + step + 1;
        if (step + 1 == steps) ++pass;
        if (progress)
          progress({"calibration",
                    uint64_t(read * length) + uint64_t(length) * done / (uint64_t(passes) * steps),
                    all});
      },
      [&](int) {
        squares.end_window();
        result.tokens = int64_t(++read) * length, pass = 0;
        if (!keep || read == text.windows) return;
        take(), expect_finite(result), keep(result);
      });
  take();
  expect_finite(result);
  return result;
}

void save_calibration(const std::string& path, const Calibration& calibration,
                      const std::string& model) {
  ModelSource source{model, "imatrix", {}, {}, {}};
  // Keys that only GGUF has carry the importer's prefix (gguf_names.h).
  const auto theirs = [](std::string_view word) {
    return fmt::format("{}{}", kForeignPrefix, word);
  };
  Metadata& meta = source.meta;
  meta.set_str("general.architecture", "imatrix");
  meta.set_str(theirs("general.type"), "imatrix");
  meta.set_strs(theirs("imatrix.datasets"), {calibration.text});
  meta.set(theirs("imatrix.chunk_count"),
           {ValueType::u32, {}, calibration.tokens / kCalibrationWindow});
  meta.set(theirs("imatrix.chunk_size"), {ValueType::u32, {}, int64_t(kCalibrationWindow)});
  meta.set_str(theirs(kText), calibration.text);
  meta.set_str(theirs(kHash), calibration.hash);
  meta.set_int(theirs(kTokens), calibration.tokens);
  if (!calibration.model.empty()) meta.set_str(theirs(kModel), calibration.model);
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols, const float* x) {
    source.tensors.push_back(
        {{theirs(name), Format::f32, rows, cols}, [=](int64_t first, int64_t last, std::byte* dst) {
           if (rows == 1) return void(std::memcpy(dst, x, size_t(cols) * 4));
           for (int64_t s = first; s < last; ++s) {
             encode_strip(Format::f32, x + s * kStrip * cols, cols,
                          int(std::min<int64_t>(kStrip, rows - s * kStrip)), cols, dst);
             dst += strip_bytes(Format::f32, cols);
           }
         }});
  };
  std::map<std::string, std::vector<float>> counts;
  for (const auto& [name, in] : calibration.inputs) {
    const std::string tensor = gguf_tensor_name(name);
    counts[name].assign(in.tokens.begin(), in.tokens.end());
    add(tensor + std::string(kSums), in.experts(), in.cols, in.sums.data());
    add(tensor + std::string(kCounts), in.experts(), 1, counts[name].data());
  }
  std::map<std::string, float> kl(calibration.kl.begin(), calibration.kl.end());
  for (const auto& [name, x] : kl) add(gguf_tensor_name(name) + std::string(kKl), 1, 1, &x);
  export_gguf(path, source);
}

namespace {

std::vector<float> floats_of(const GgufFile& file, const GgufTensor& t) {
  if (t.format != Format::f32)
    fail(Exit::bad_file, "{}: tensor {} is {}, expected f32", file.parts[t.part]->path(),
         escaped(t.name), info(t.format).name);
  std::vector<float> values(size_t(t.rows * t.cols));
  std::memcpy(values.data(), file.data(t), t.bytes);
  return values;
}

void expect_sums(const std::string& path, const std::string& tensor,
                 const std::vector<float>& sums) {
  for (const float x : sums)
    if (!(x >= 0 && std::isfinite(x)))
      fail(Exit::bad_file, "{}: tensor {} has the value {}, expected sums of squares", path,
           escaped(tensor), x);
}

// llama.cpp's older importance matrices, from before they were GGUF files:
//   i32 number of tensors. For each: i32 length, name, i32 calls, i32 number of columns, f32 sums.
//   Optionally at the end: i32 calls in total, i32 length, name of the text.
// The sums are sums of squares in units that depend on the program that wrote the file. The number
// of tokens of a call is not in the file; llama.cpp's usual number is assumed.
class OldImatrix {
 public:
  explicit OldImatrix(const Mapping& file) : in_(file.path(), file.bytes()) {
    result_.text = name_in(file.path()), result_.hash = hash_of(file.bytes());
  }

  Calibration read() {
    constexpr uint64_t kLeast = 4 + 1 + 4 + 4 + 4;  // bytes of a tensor
    constexpr int32_t kMost = 1 << 20;              // a larger number is probably text
    Cursor ahead = in_;
    if (const auto n = ahead.take<int32_t>("number of tensors"); n < 1 || n > kMost)
      fail(
          Exit::bad_file,
          "{}: the file begins with \"{}\", expected \"GGUF\" or the number of tensors of an older "
          "importance matrix",
          in_.file(), escaped(beginning_of(in_.file(), 4)));
    const uint64_t n = count("number of tensors", kLeast);
    for (uint64_t i = 0; i < n; ++i) take_tensor(fmt::format("tensor {}", i));
    if (in_.remaining() > 0) take_end();
    if (in_.remaining() > 0)
      fail(Exit::bad_file, "{}: {} bytes remain at offset {}, expected the end of the file",
           in_.file(), in_.remaining(), in_.at());
    return std::move(result_);
  }

 private:
  uint64_t count(const std::string& field, uint64_t least, int32_t fewest = 1) {
    const auto n = in_.take<int32_t>(field);
    if (n < fewest)
      fail(Exit::bad_file, "{}: {} is {}, expected {} or more", in_.file(), field, n, fewest);
    return in_.count(uint64_t(n), least, field);
  }
  std::string text(const std::string& field, int32_t fewest) {
    const auto bytes = in_.raw(count(field + ", length", 1, fewest), field);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void take_tensor(const std::string& number) {
    const std::string name = text(number + ", name", 1), field = "tensor " + escaped(name);
    const auto calls = in_.take<int32_t>(field + ", calls");
    if (calls < 0)
      fail(Exit::bad_file, "{}: {}, calls is {}, expected 0 or more", in_.file(), field, calls);
    const auto [at, fresh] = result_.inputs.try_emplace(our_tensor_name(name));
    if (!fresh) fail(Exit::bad_file, "{}: {} occurs twice, expected once", in_.file(), field);
    InputSquares& squares = at->second;
    const uint64_t cols = count(field + ", columns", sizeof(float));
    squares.cols = int64_t(cols), squares.sums.resize(cols);
    const auto bytes = in_.raw(cols * sizeof(float), field);
    std::memcpy(squares.sums.data(), bytes.data(), bytes.size());
    expect_sums(in_.file(), name, squares.sums);
    squares.tokens = {std::max<int64_t>(calls, 1) * kCalibrationWindow};
  }
  void take_end() {
    in_.take<int32_t>("calls in all");
    if (in_.remaining() == 0) return;
    if (const std::string name = text("name of the text", 0); !name.empty())
      result_.text = name_in(name);
  }

  Cursor in_;
  Calibration result_;
};

}  // namespace

Calibration load_calibration(const std::string& path) {
  if (beginning_of(path, 4) != kGgufMagic) return OldImatrix(*Mapping::open(path)).read();
  const GgufFile file = read_gguf(path);
  Calibration calibration;
  const auto text = [&](const char* key) {
    const auto found = file.values.find(key);
    const auto* value =
        found == file.values.end() ? nullptr : std::get_if<std::string>(&found->second.data);
    return value ? *value : std::string();
  };
  calibration.text = text(kText), calibration.hash = text(kHash), calibration.model = text(kModel);
  if (calibration.hash.empty())
    calibration.text = name_in(path), calibration.hash = hash_of(file.parts[0]->bytes());
  std::map<std::string, const GgufTensor*> tensors;
  for (const GgufTensor& t : file.tensors) tensors.emplace(t.name, &t);
  for (const auto& [name, tensor] : tensors)
    if (name.ends_with(kKl) && tensor->rows * tensor->cols == 1)
      calibration.kl[our_tensor_name(name.substr(0, name.size() - kKl.size()))] =
          double(floats_of(file, *tensor)[0]);
  for (const auto& [name, sums] : tensors) {
    if (!name.ends_with(kSums)) continue;
    const std::string tensor = name.substr(0, name.size() - kSums.size());
    const auto counts = tensors.find(tensor + std::string(kCounts));
    if (counts == tensors.end() || counts->second->rows * counts->second->cols != sums->rows)
      fail(Exit::bad_file,
           "{}: tensor {} has {} rows, expected a tensor {}{} with one number for each row", path,
           escaped(name), sums->rows, escaped(tensor), kCounts);
    InputSquares& in = calibration.inputs[our_tensor_name(tensor)];
    in.cols = sums->cols, in.sums = floats_of(file, *sums);
    for (const float n : floats_of(file, *counts->second)) {
      if (!(n >= 0 && n < 0x1p53f))
        fail(Exit::bad_file, "{}: tensor {}{} has the value {}, expected numbers of tokens", path,
             escaped(tensor), kCounts, n);
      in.tokens.push_back(int64_t(n));
    }
    expect_sums(path, name, in.sums);
  }
  if (calibration.inputs.empty())
    fail(Exit::bad_file, "{}: no tensor name ends in {}, expected an importance matrix", path,
         kSums);
  if (const auto found = file.values.find(kTokens); found != file.values.end())
    if (const auto* n = std::get_if<int64_t>(&found->second.data)) calibration.tokens = *n;
  return calibration;
}

}  // namespace chaski
