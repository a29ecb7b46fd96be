#include "models/import/hf/write_packed.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "models/architecture.h"
#include "models/import/hf/packed_blocks.h"
#include "models/import/hf/write_config.h"

namespace chaski {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kWeightEnd = ".weight";
constexpr const char* kAllFit =
    "--type q4_0 --keep-above 1";  // formats that both layouts can store

template <class T>
std::vector<std::byte> bytes_in(const std::vector<T>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

class PackedWriter {
 public:
  PackedWriter(const std::string& folder, const ModelSource& source, PackedLayout layout)
      : folder_(folder), source_(source), awq_(layout == PackedLayout::awq) {
    config_ = config_of(source, name());
    model_of(source.meta)->tensors(slots_);
    std::map<std::string, TensorSlot> by_name;
    for (TensorSlot& slot : slots_.all()) by_name.emplace(slot.name, slot);
    for (const TensorSource& t : source.tensors) take(t, by_name);
    if (weights_.empty())
      fail(Exit::bad_file,
           "{}: no weight has a format that {} can store: 'chaski quantize IN OUT {}' of it makes "
           "a file whose weights have",
           source.path, name(), kAllFit);
    choose_bits();
    for (const Weight& w : weights_) list(w);
  }

  PackedFolder run(const OnWritten& done, const std::vector<NamedText>& tokenizer) {
    config_["quantization_config"] = quantization();
    WrittenFolder made = write_folder_files(folder_, source_, std::move(entries_),
                                            config_.dump(2) + "\n", tokenizer, done);
    return {std::move(made), bits_, weights_.size(), why_eight_, grown_};
  }

 private:
  struct Weight {
    const TensorSource* source;
    TensorSlot slot;
    std::string name;  // without ".weight"
  };
  const char* name() const { return awq_ ? "AWQ" : "GPTQ"; }
  int codes_in_word() const { return 32 / bits_; }

  ordered_json quantization() const {
    if (awq_)
      return {{"quant_method", "awq"}, {"bits", 4},          {"group_size", kPackedGroup},
              {"version", "gemm"},     {"zero_point", true}, {"modules_to_not_convert", plain_}};
    ordered_json out = {{"quant_method", "gptq"},
                        {"bits", bits_},
                        {"group_size", kPackedGroup},
                        {"desc_act", sorted_},
                        {"sym", symmetric_},
                        {"lm_head", false},
                        {"checkpoint_format", has_zero_ ? "gptq_v2" : "gptq"}};
    for (const std::string& name : plain_) {
      std::string pattern = "-:^";
      for (const char c : name) pattern += c == '.' ? "\\." : std::string(1, c);
      out["dynamic"][pattern + "$"] = ordered_json::object();
    }
    return out;
  }

  // --- the list of tensors ---

  void take(const TensorSource& t, const std::map<std::string, TensorSlot>& by_name) {
    const auto found = by_name.find(t.info.name);
    const Role role = found == by_name.end() ? Role::matmul : found->second.role;
    if (role == Role::column_order) {
      if (awq_)
        fail(Exit::bad_file, "{}: tensor {} orders columns, which AWQ cannot store", source_.path,
             escaped(t.info.name));
      sorted_ = true;
      return;
    }
    if (role == Role::outlier_columns || role == Role::outliers)
      fail(Exit::bad_file,
           "{}: tensor {} holds outlier columns, which {} cannot store, expected weights quantized "
           "without --outliers",
           source_.path, escaped(t.info.name), name());
    if (role == Role::experts)
      fail(Exit::bad_file,
           "{}: tensor {} has the matrices of several experts, which chaski does not write as {}",
           source_.path, escaped(t.info.name), name());
    if (found == by_name.end() || found->second.hf.empty())
      fail(Exit::bad_file,
           "{}: tensor {} has no name in the Hugging Face format, expected a model that was "
           "imported from a Hugging Face folder",
           source_.path, escaped(t.info.name));
    const TensorSlot& slot = found->second;
    const std::string name = (slot.role == Role::head ? "" : slots_.hf_prefix) + slot.hf;
    if (slot.role != Role::matmul || info(t.info.format).block == 1) {
      if (slot.role == Role::matmul)
        plain_.push_back(name.substr(0, name.size() - kWeightEnd.size()));
      return list_plain(t, slot.hf_order, name);
    }
    if (!has_image(t.info.format))
      fail(Exit::bad_file,
           "{}: tensor {} is {}, which {} cannot store: 'chaski quantize IN OUT {}' of the "
           "original model, or of this one, makes a file that it can store",
           source_.path, escaped(t.info.name), info(t.info.format).name, this->name(), kAllFit);
    weights_.push_back({&t, slot, name.substr(0, name.size() - kWeightEnd.size())});
  }

  void choose_bits() {
    bool middle4 = true, zero4 = false;
    for (const Weight& w : weights_) {
      bool fits = true;
      each_block(*w.source, [&](int64_t row, int64_t block, const Multiples& m, bool exact) {
        if (!exact)
          fail(Exit::bad_file,
               "{}: tensor {} is {} with a minimum that is not a multiple of its scale (row {}, "
               "column {}), which {} cannot store with whole zero points: 'chaski quantize IN OUT "
               "{}' of the original model makes a file that it can store",
               source_.path, escaped(w.source->info.name), info(w.source->info.format).name, row,
               block * kPackedGroup, name(), kAllFit);
        const int zero = m.zero(4);
        fits = fits && zero >= 0, middle4 = middle4 && zero == 8, zero4 = zero4 || zero == 0;
      });
      if (!fits && why_eight_.empty()) why_eight_ = w.source->info.name;
    }
    if (awq_ && !why_eight_.empty())
      fail(
          Exit::bad_file,
          "{}: tensor {} is {}, whose codes need 8 bits, but AWQ has 4: expected --layout gptq, or "
          "a model with all weights in q4_0 (chaski quantize IN OUT {})",
          source_.path, escaped(why_eight_), info(source_.find(why_eight_)->info.format).name,
          kAllFit);
    bits_ = why_eight_.empty() ? 4 : 8;
    symmetric_ = bits_ == 8 || middle4, has_zero_ = bits_ == 4 && zero4;
  }

  void list(const Weight& w) {
    const int64_t rows = w.source->info.rows, cols = w.source->info.cols, per = codes_in_word();
    if (rows % per != 0)
      fail(Exit::bad_file, "{}: tensor {} has {} rows, expected a multiple of {} for {}",
           source_.path, escaped(w.source->info.name), rows, per, name());
    const auto add = [&](const char* part, const char* dtype, std::vector<int64_t> shape, int item,
                         std::vector<std::byte> (PackedWriter::*make)(const Weight&) const) {
      entries_.push_back({w.name + part, dtype, std::move(shape), item,
                          [this, &w, make](AtomicFile& file) { file.write((this->*make)(w)); }});
    };
    if (awq_)
      add(".qweight", "I32", {cols, rows / 8}, 4, &PackedWriter::codes);
    else
      add(".qweight", "I32", {cols / per, rows}, 4, &PackedWriter::codes);
    add(".qzeros", "I32", {cols / kPackedGroup, rows / per}, 4, &PackedWriter::zeros);
    add(".scales", "F16", {cols / kPackedGroup, rows}, 2, &PackedWriter::scales);
    if (!awq_) add(".g_idx", "I32", {cols}, 4, &PackedWriter::groups);
  }

  void list_plain(const TensorSource& t, const RowOrder& order, const std::string& name) {
    const Format format = narrowest(t);
    const uint64_t before = t.info.bytes(),
                   after = row_bytes(format, 1) * uint64_t(t.info.rows * t.info.cols);
    if (after > before)
      grown_.push_back({name, std::string(info(t.info.format).name), std::string(info(format).name),
                        before, after});
    // The dtype that represents all tensors exactly, also the f16 scales.
    if (format != Format::f16) config_["torch_dtype"] = "float32";
    const auto shape =
        t.info.tiled() ? std::vector{t.info.rows, t.info.cols} : std::vector{t.info.cols};
    entries_.push_back({name,
                        format == Format::f16    ? "F16"
                        : format == Format::bf16 ? "BF16"
                                                 : "F32",
                        shape, int(row_bytes(format, 1)), [&t, order, format](AtomicFile& file) {
                          write_plain(t, order, format, file);
                        }});
  }

  // --- the contents of the tensors ---

  static void put_value(Format format, float x, std::byte* to) {
    const uint16_t half = format == Format::f16 ? f16_of_f32(x) : bf16_of_f32(x);
    format == Format::f32 ? std::memcpy(to, &x, sizeof x) : std::memcpy(to, &half, sizeof half);
  }
  // Rows in our order are written one by one; reordered rows after all are collected.
  static void write_plain(const TensorSource& t, const RowOrder& order, Format format,
                          AtomicFile& file) {
    const size_t item = row_bytes(format, 1), stride = item * size_t(t.info.cols);
    const bool moves = !order.plain() && t.info.tiled();
    std::vector<std::byte> out(moves ? stride * size_t(t.info.rows) : stride);
    each_row_of_values(t, [&](int64_t row, const std::vector<float>& values) {
      std::byte* to = out.data() + (moves ? size_t(order.theirs(row)) * stride : 0);
      for (size_t i = 0; i < values.size(); ++i) {
        const bool element = !t.info.tiled() && !order.plain();
        put_value(format, values[i], to + (element ? size_t(order.theirs(int64_t(i))) : i) * item);
      }
      if (!moves) file.write(out);
    });
    if (moves) file.write(out);
  }

  // The bit position of a code in its word. AWQ interleaves the eight rows of a word.
  int shift(int64_t at) const {
    constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return bits_ * (awq_ ? kPlaces[at % 8] : int(at % codes_in_word()));
  }
  // The folder's column for each of ours.
  std::vector<int64_t> columns(const Weight& w) const {
    std::vector<int64_t> theirs(size_t(w.source->info.cols));
    std::iota(theirs.begin(), theirs.end(), int64_t{0});
    if (const TensorSource* order = source_.find(w.source->info.name + std::string(kOrder))) {
      std::vector<float> numbers(theirs.size());
      order->read(0, 1, reinterpret_cast<std::byte*>(numbers.data()));
      theirs.assign(numbers.begin(), numbers.end());
    }
    return theirs;
  }
  std::vector<std::byte> codes(const Weight& w) const {
    const int64_t rows = w.source->info.rows, per = codes_in_word();
    const std::vector<int64_t> theirs = columns(w);
    std::vector<uint32_t> words(size_t(rows * w.source->info.cols / per));
    each_block(*w.source, [&](int64_t ours, int64_t block, const Multiples& m, bool) {
      const int64_t row = w.slot.hf_order.theirs(ours);
      const int zero = m.zero(bits_);
      for (int i = 0; i < kPackedGroup; ++i) {
        const int64_t col = theirs[size_t(block * kPackedGroup + i)];
        const int64_t at = awq_ ? col * (rows / 8) + row / 8 : col / per * rows + row;
        words[size_t(at)] |= uint32_t(m.q[i] + zero) << shift(awq_ ? row : col);
      }
    });
    return bytes_in(words);
  }
  std::vector<std::byte> zeros(const Weight& w) const {
    const int64_t rows = w.source->info.rows, per = codes_in_word();
    const int less = awq_ || has_zero_ ? 0 : 1;  // GPTQ's first format stores zero points minus one
    std::vector<uint32_t> words(size_t(w.source->info.cols / kPackedGroup * rows / per));
    each_block(*w.source, [&](int64_t ours, int64_t block, const Multiples& m, bool) {
      const int64_t row = w.slot.hf_order.theirs(ours);
      words[size_t(block * (rows / per) + row / per)] |= uint32_t(m.zero(bits_) - less)
                                                         << shift(row);
    });
    return bytes_in(words);
  }
  std::vector<std::byte> scales(const Weight& w) const {
    const int64_t rows = w.source->info.rows;
    std::vector<uint16_t> numbers(size_t(w.source->info.cols / kPackedGroup * rows));
    each_block(*w.source, [&](int64_t ours, int64_t block, const Multiples& m, bool) {
      numbers[size_t(block * rows + w.slot.hf_order.theirs(ours))] = m.scale;
    });
    return bytes_in(numbers);
  }
  std::vector<std::byte> groups(const Weight& w) const {
    const std::vector<int64_t> theirs = columns(w);
    std::vector<int32_t> numbers(theirs.size());
    for (size_t c = 0; c < theirs.size(); ++c)
      numbers[size_t(theirs[c])] = int32_t(c / size_t(kPackedGroup));
    return bytes_in(numbers);
  }

  const std::string folder_;
  const ModelSource& source_;
  const bool awq_;
  Slots slots_;
  ordered_json config_;
  std::vector<std::string> plain_;  // names of weights stored as floats
  std::vector<Weight> weights_;
  std::vector<FolderTensor> entries_;
  std::vector<PackedFolder::Grown> grown_;
  std::string why_eight_;
  int bits_ = 4;
  bool sorted_ = false, symmetric_ = true, has_zero_ = false;
};

}  // namespace

PackedFolder write_packed(const std::string& folder, const ModelSource& source, PackedLayout layout,
                          const OnWritten& done, const std::vector<NamedText>& tokenizer) {
  expect_new_folder(folder, source);
  return PackedWriter(folder, source, layout).run(done, tokenizer);
}

}  // namespace chaski
