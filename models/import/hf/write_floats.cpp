#include "models/import/hf/write_floats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/architecture.h"
#include "models/import/affix.h"
#include "models/import/folder.h"
#include "models/import/hf/hf_packed.h"
#include "models/import/hf/packed_blocks.h"
#include "models/import/hf/write_config.h"
#include "quant/encode/float_rows.h"

namespace chaski {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kEnd = ".weight";

// A row in the folder's order. `blocks`: its blocks if the source has e4m3 with scales, else null.
using TakeRow = std::function<void(int64_t row, const float* x, const F8S::Block* blocks)>;

// A weight as the folder will have it. Its rows come in any order unless in_order.
struct Rows {
  std::string name;
  std::vector<int64_t> shape;
  Format from;
  Role role = Role::matmul;
  bool known = false;   // the architecture has a place for it
  bool linear = false;  // (outputs, inputs), multiplied by activations
  std::function<void(const TakeRow&)> each = {};
  bool in_order = true;

  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()) / cols();
  }
  bool vector() const { return shape.size() < 2 || (known && role == Role::vector); }
  // A layer of other programs, which they read in fp8 unless config.json names it. A gate of one
  // output, like Qwen's shared_expert_gate, is such a layer, but a vector of ours.
  bool matrix() const { return shape.size() == 2 && name.ends_with(kEnd); }
  std::string module() const { return name.substr(0, name.size() - kEnd.size()); }
};

// The scale that all blocks of a row have; 0: they have several.
float common_scale(const F8S::Block* blocks, int64_t cols) {
  const std::span all(blocks, size_t(cols / F8S::kBlock));
  const bool same = std::ranges::all_of(all, [&](const auto& b) { return b.d == all[0].d; });
  return same && all[0].d > 0 && all[0].d < INFINITY ? all[0].d : 0;
}

float scale_of(const float* x, const F8S::Block* blocks, int64_t cols) {
  const float same = blocks ? common_scale(blocks, cols) : 0;
  return same > 0 ? same : f8_scale_of(x, cols);
}

// Python writes Infinity into config.json, which JSON does not have. While the file is a tree, it
// is one of these strings.
constexpr std::string_view kInfinities[][2] = {{"-Infinity", "\"-__Infinity__\""},
                                               {"Infinity", "\"__Infinity__\""}};

std::string without_infinities(std::string_view text) {
  std::string out;
  bool quoted = false;
  while (!text.empty()) {
    size_t taken = quoted && text[0] == '\\' ? 2 : 1;
    std::string_view put = text.substr(0, taken);
    for (const auto& [number, name] : kInfinities)
      if (!quoted && text.starts_with(number)) put = name, taken = number.size();
    quoted = quoted != (text[0] == '"');
    out += put;
    text.remove_prefix(std::min(taken, text.size()));
  }
  return out;
}

std::string with_infinities(std::string text) {
  for (const auto& [number, name] : kInfinities)
    for (size_t at; (at = text.find(name)) != text.npos;) text.replace(at, name.size(), number);
  return text;
}

class FloatWriter {
 public:
  FloatWriter(const std::string& folder, const ModelSource& source, FloatLayout layout)
      : folder_(folder), source_(source), fp8_(layout == FloatLayout::fp8) {
    model_of(source.meta)->tensors(slots_);
    for (const TensorSlot& slot : slots_.all()) {
      if (!slot.hf.empty()) by_hf_.emplace(slot.hf, slot);
      if (!slot.hf_else.empty()) by_hf_.emplace(slot.hf_else, slot);
      by_name_.emplace(slot.name, slot);
      if (slot.role == Role::head && slot.hf.ends_with(kEnd))
        plain_.insert(slot.hf.substr(0, slot.hf.size() - kEnd.size()));
    }
    if (is_folder(source.path))
      take_folder();
    else
      take_tensors();
    for (Rows& w : weights_) list(w);
    if (fp8_ && made_.matrices == 0)
      fail(Exit::bad_file,
           "{}: no weight is a matrix of outputs x inputs with a multiple of {} inputs, expected "
           "one for fp8; --layout bf16 writes the model",
           source.path, F8S::kBlock);
  }

  FloatFolder run(const OnWritten& done, const std::vector<NamedText>& tokenizer,
                  uint64_t shard_bytes) {
    if (fp8_) config_["quantization_config"] = quantization();
    const WrittenFolder written =
        write_folder_files(folder_, source_, std::move(entries_),
                           with_infinities(config_.dump(2)) + "\n", tokenizer, done, shard_bytes);
    static_cast<WrittenFolder&>(made_) = written;
    if (made_.matrices > 0) made_.error /= double(made_.matrices);
    return made_;
  }

 private:
  const char* name() const { return fp8_ ? "fp8" : "bf16"; }

  // --- from a folder: its own config.json, and its tensors under their names ---

  void take_folder() {
    const std::string path = source_.path + "/config.json";
    const auto text = Mapping::open(path);
    const auto bytes = text->bytes();
    Metadata meta;
    const HfConfig read = read_hf_config(source_.path, meta);
    config_ = ordered_json::parse(
        without_infinities({reinterpret_cast<const char*>(bytes.data()), bytes.size()}), nullptr,
        false);
    if (config_.is_discarded())
      fail(Exit::bad_file, "{}: is not valid JSON, expected an object", path);
    if (read.quantization)
      for (const char* method : {"mxfp4", "bitnet"})
        if ((*read.quantization)["quant_method"].str() == method)
          fail(Exit::bad_file,
               "{}: quantization_config.quant_method is {}, which chaski does not write as {}",
               path, method, name());
    config_.erase("quantization_config");
    say_dtype(config_);
    for (auto& [key, part] : config_.items())
      if (part.is_object()) say_dtype(part);
    if (!config_.contains("dtype")) config_["torch_dtype"] = "bfloat16";
    SafetensorsFolder all =
        read_safetensors_folder(source_.path, [](const std::string&) { return true; });
    mappings_ = std::move(all.mappings);
    for (PackedTensor& t : take_packed(read, all.tensors)) take(std::move(t));
    for (const SafeTensor& t : all.tensors) take(t);
  }

  static void say_dtype(ordered_json& part) {
    for (const char* key : {"torch_dtype", "dtype"})
      if (part.contains(key)) part[key] = "bfloat16";
  }

  // The place that the architecture has for a tensor. The folder's names may have the prefixes of a
  // model that reads more than text.
  const TensorSlot* slot_of(std::string_view name) const {
    std::string starred;  // with * for the number of an expert
    for (size_t i = 0; i < name.size();) {
      size_t end = std::min(name.find('.', i), name.size());
      const std::string_view part = name.substr(i, end - i);
      const bool number = !part.empty() && std::ranges::all_of(part, [](unsigned char c) {
        return std::isdigit(c) != 0;
      });
      const bool expert = number && starred.ends_with("experts.");
      starred += expert ? "*" : std::string(part);
      if (end < name.size()) starred += '.';
      i = end + 1;
    }
    for (std::string_view place : {name, std::string_view(starred)})
      for (const char* prefix : {"", "model.", "language_model.", slots_.hf_prefix.c_str()}) {
        drop_prefix(place, prefix);
        if (const auto at = by_hf_.find(place); at != by_hf_.end()) return &at->second;
      }
    return nullptr;
  }

  void add(Rows w, const TensorSlot* slot, bool outputs_first) {
    w.known = slot != nullptr;
    if (slot) w.role = slot->role;
    w.linear = slot && outputs_first && w.shape.size() == 2 && w.name.ends_with(kEnd) &&
               (slot->role == Role::matmul || slot->role == Role::experts);
    if (fp8_ && slot && slot->role == Role::experts && w.shape.size() == 3)
      fail(Exit::bad_file,
           "{}: tensor {} has the matrices of {} experts in one, expected one tensor for each "
           "expert for fp8; --layout bf16 writes the model",
           source_.path, escaped(w.name), w.shape[0]);
    weights_.push_back(std::move(w));
  }

  void take(PackedTensor t) {
    const TensorSlot* slot = slot_of(t.name);
    Rows w{t.name, {t.rows, t.cols}, t.format};
    w.each = [t = std::move(t)](const TakeRow& take) {
      std::vector<std::byte> row(row_bytes(t.format, t.cols));
      std::vector<float> x(size_t(t.cols)), moved(t.order.empty() ? 0 : x.size());
      for (int64_t r = 0; r < t.rows; ++r) {
        t.read(r, row.data());
        decode_plain_row(t.format, row.data(), t.cols, x.data());
        for (size_t c = 0; c < moved.size(); ++c) moved[size_t(t.order[c])] = x[c];
        take(r, moved.empty() ? x.data() : moved.data(), blocks_of(t.format, row.data()));
      }
    };
    add(std::move(w), slot, true);
  }

  static const F8S::Block* blocks_of(Format format, const std::byte* row) {
    return format == Format::f8s ? reinterpret_cast<const F8S::Block*>(row) : nullptr;
  }

  void take(const SafeTensor& t) {
    if (!t.format && (t.dtype.starts_with("F") || t.dtype == "U8") && slot_of(t.name))
      fail(Exit::bad_file, "{}: tensor {} has dtype {}, expected F32, F16, BF16 or F8_E4M3 for {}",
           t.file, escaped(t.name), t.dtype, name());
    if (!t.format) {  // indices and masks
      int64_t n = 1;
      for (const int64_t d : t.shape) n *= d;
      entries_.push_back(
          {t.name, t.dtype, t.shape, int(int64_t(t.size) / std::max(n, int64_t{1})),
           [bytes = std::as_bytes(std::span(t.bytes()))](AtomicFile& file) { file.write(bytes); }});
      return;
    }
    const TensorSlot* slot = slot_of(t.name);
    Rows w{t.name, t.shape, *t.format};
    w.each = [t, rows = w.rows(), cols = w.cols()](const TakeRow& take) {
      const size_t stride = row_bytes(*t.format, cols);
      std::vector<float> x(static_cast<size_t>(cols));
      for (int64_t r = 0; r < rows; ++r) {
        decode_plain_row(*t.format, t.data + size_t(r) * stride, cols, x.data());
        take(r, x.data(), nullptr);
      }
    };
    add(std::move(w), slot, slot && !slot->hf_order.transposed);
  }

  // --- from another file: the tensors that the architecture has, under Hugging Face's names ---

  void take_tensors() {
    config_ = config_of(source_, name());
    config_["torch_dtype"] = "bfloat16";
    for (const TensorSource& t : source_.tensors) take(t);
  }

  void take(const TensorSource& t) {
    const auto found = by_name_.find(t.info.name);
    if (found != by_name_.end() && found->second.role == Role::column_order) return;
    const Role role = found == by_name_.end() ? Role::matmul : found->second.role;
    if (role == Role::outlier_columns || role == Role::outliers)
      fail(Exit::bad_file,
           "{}: tensor {} holds outlier columns, which a folder cannot store, expected weights "
           "quantized without --outliers",
           source_.path, escaped(t.info.name));
    if (role == Role::experts)
      fail(Exit::bad_file,
           "{}: tensor {} has the matrices of several experts, which chaski does not write as {}",
           source_.path, escaped(t.info.name), name());
    if (found == by_name_.end() || found->second.hf.empty())
      fail(Exit::bad_file,
           "{}: tensor {} has no name in the Hugging Face format, expected a model that was "
           "imported from a Hugging Face folder",
           source_.path, escaped(t.info.name));
    const TensorSlot& slot = found->second;
    const auto shape =
        t.info.tiled() ? std::vector{t.info.rows, t.info.cols} : std::vector{t.info.cols};
    Rows w{(role == Role::head ? "" : slots_.hf_prefix) + slot.hf, shape, t.info.format};
    w.in_order = slot.hf_order.plain() || !t.info.tiled();
    w.each = [this, &t, order = slot.hf_order](const TakeRow& take) { each(t, order, take); };
    add(std::move(w), &slot, true);
  }

  // The rows of one of our tensors, with the folder's order of rows, elements and columns.
  void each(const TensorSource& t, const RowOrder& order, const TakeRow& take) const {
    const Format format = t.info.format;
    std::vector<std::byte> row(row_bytes(format, t.info.cols));
    std::vector<float> x(size_t(t.info.cols));
    const std::vector<int64_t> theirs = columns(t, order);
    std::vector<float> moved(theirs.size());
    each_row(t, [&](int64_t r, const std::byte* strip, int lane) {
      const std::byte* plain = strip;
      if (t.info.tiled()) {
        unpack_row(format, strip, lane, t.info.cols, row.data());
        plain = row.data();
      }
      decode_plain_row(format, plain, t.info.cols, x.data());
      for (size_t c = 0; c < moved.size(); ++c) moved[size_t(theirs[c])] = x[c];
      take(t.info.tiled() ? order.theirs(r) : r, moved.empty() ? x.data() : moved.data(),
           blocks_of(format, plain));
    });
  }
  // The folder's column for each of ours; empty: the same.
  std::vector<int64_t> columns(const TensorSource& t, const RowOrder& order) const {
    std::vector<int64_t> theirs;
    if (!t.info.tiled() && !order.plain())
      for (int64_t c = 0; c < t.info.cols; ++c) theirs.push_back(order.theirs(c));
    if (const TensorSource* by = source_.find(t.info.name + std::string(kOrder))) {
      std::vector<float> numbers(size_t(t.info.cols));
      by->read(0, 1, reinterpret_cast<std::byte*>(numbers.data()));
      theirs.assign(numbers.begin(), numbers.end());
    }
    return theirs;
  }

  // --- the tensors of the folder ---

  void list(const Rows& w) {
    if (w.linear && fp8_ && w.cols() % F8S::kBlock == 0) return list_fp8(w);
    if (w.linear && fp8_) made_.wide.push_back(w.name);
    if (w.matrix()) plain_.insert(w.module());
    const Format format = w.vector() && !fits_bf16(w) ? Format::f32 : Format::bf16;
    const int item = int(row_bytes(format, 1));
    entries_.push_back({w.name, format == Format::f32 ? "F32" : "BF16", w.shape, item,
                        [this, &w, format](AtomicFile& file) { write_floats(w, format, file); }});
  }

  static bool fits_bf16(const Rows& w) {
    std::vector<std::byte> out(2 * size_t(w.cols()));
    bool fits = true;
    w.each([&](int64_t, const float* x, const F8S::Block*) {
      fits = fits && bf16_row(x, w.cols(), out.data()).changed == 0;
    });
    return fits;
  }

  // Collects encoded rows, and writes them as soon as their order allows.
  class RowsOut {
   public:
    RowsOut(const Rows& w, size_t stride, AtomicFile& file)
        : file_(file), stride_(stride), in_order_(w.in_order) {
      constexpr size_t kChunk = 1 << 20;
      const size_t rows = in_order_ ? std::max<size_t>(1, kChunk / stride) : size_t(w.rows());
      out_.resize(std::min(rows, size_t(w.rows())) * stride);
    }
    std::byte* row(int64_t row) {
      if (!in_order_) return out_.data() + size_t(row) * stride_;
      if (used_ == out_.size()) flush();
      used_ += stride_;
      return out_.data() + used_ - stride_;
    }
    void end() { in_order_ ? flush() : file_.write(out_); }

   private:
    void flush() {
      file_.write(std::span(out_).first(used_));
      used_ = 0;
    }
    AtomicFile& file_;
    const size_t stride_;
    const bool in_order_;
    std::vector<std::byte> out_;
    size_t used_ = 0;
  };

  [[noreturn]] void refuse_number(const Rows& w, int64_t row, const char* format) const {
    fail(Exit::bad_file,
         "{}: tensor {} has a number in row {} that is not finite in {}, expected finite weights",
         source_.path, escaped(w.name), row, format);
  }

  void write_floats(const Rows& w, Format format, AtomicFile& file) {
    RowsOut out(w, row_bytes(format, w.cols()), file);
    w.each([&](int64_t row, const float* x, const F8S::Block*) {
      std::byte* to = out.row(row);
      if (format == Format::f32) {
        for (int64_t i = 0; i < w.cols(); ++i)
          if (!std::isfinite(x[i])) refuse_number(w, row, "f32");
        std::memcpy(to, x, size_t(w.cols()) * sizeof(float));
        return;
      }
      const Bf16Row made = bf16_row(x, w.cols(), to);
      if (!made.finite) refuse_number(w, row, "bf16");
      made_.rounded += made.changed;
      made_.weights += w.cols();
    });
    out.end();
  }

  void list_fp8(const Rows& w) {
    ++made_.matrices;
    // Only scales that the source had may need more bits than a bf16 has.
    bool wide = false;
    if (w.from == Format::f8s)
      w.each([&](int64_t, const float* x, const F8S::Block* blocks) {
        const float scale = scale_of(x, blocks, w.cols());
        wide = wide || f32_of_bf16(bf16_of_f32(scale)) != scale;
      });
    const int item = wide ? 4 : 2;
    const auto begin = std::make_shared<uint64_t>(0);  // of the scales in the file
    entries_.push_back({w.name + "_scale",
                        wide ? "F32" : "BF16",
                        {w.rows(), 1},
                        item,
                        [begin, bytes = uint64_t(item * w.rows())](AtomicFile& file) {
                          *begin = file.size();
                          file.pad_to(*begin + bytes);
                        }});
    entries_.push_back(
        {w.name, "F8_E4M3", w.shape, 1,
         [this, &w, begin, item](AtomicFile& file) { write_fp8(w, file, *begin, item); }, true});
  }

  void write_fp8(const Rows& w, AtomicFile& file, uint64_t scales_begin, int item) {
    RowsOut out(w, size_t(w.cols()), file);
    std::vector<std::byte> scales(size_t(item * w.rows()));
    double squares = 0, lost = 0;
    w.each([&](int64_t row, const float* x, const F8S::Block* blocks) {
      const float scale = scale_of(x, blocks, w.cols());
      const F8Row made = f8_row(x, w.cols(), scale, out.row(row));
      if (!made.finite) refuse_number(w, row, "fp8");
      squares += made.squares, lost += made.lost;
      const uint16_t half = bf16_of_f32(scale);
      std::byte* to = scales.data() + row * item;
      item == 2 ? std::memcpy(to, &half, sizeof half) : std::memcpy(to, &scale, sizeof scale);
    });
    out.end();
    file.write_at(scales_begin, scales);
    const double error = squares > 0 ? lost / squares : 0;
    made_.exact += error == 0;
    made_.error += error;
    if (error > made_.worst_error) made_.worst_error = error, made_.worst = w.name;
  }

  ordered_json quantization() const {
    const ordered_json weights = {{"num_bits", 8},
                                  {"type", "float"},
                                  {"symmetric", true},
                                  {"strategy", "channel"},
                                  {"dynamic", false}},
                       activations = {{"num_bits", 8},
                                      {"type", "float"},
                                      {"symmetric", true},
                                      {"strategy", "token"},
                                      {"dynamic", true}};
    return {{"quant_method", "compressed-tensors"},
            {"format", "float-quantized"},
            {"quantization_status", "compressed"},
            {"config_groups",
             {{"group_0",
               {{"targets", ordered_json::array({"Linear"})},
                {"weights", weights},
                {"input_activations", activations}}}}},
            {"ignore", plain_}};
  }

  const std::string folder_;
  const ModelSource& source_;
  const bool fp8_;
  Slots slots_;
  std::map<std::string, TensorSlot, std::less<>> by_hf_, by_name_;
  std::vector<std::shared_ptr<const Mapping>> mappings_;
  ordered_json config_;
  std::vector<Rows> weights_;
  std::set<std::string> plain_;  // matrices that are not fp8, without ".weight"
  std::vector<FolderTensor> entries_;
  FloatFolder made_;
};

}  // namespace

FloatFolder write_floats(const std::string& folder, const ModelSource& source, FloatLayout layout,
                         const OnWritten& done, const std::vector<NamedText>& tokenizer,
                         uint64_t shard_bytes) {
  expect_new_folder(folder, source);
  return FloatWriter(folder, source, layout).run(done, tokenizer, shard_bytes);
}

}  // namespace chaski
