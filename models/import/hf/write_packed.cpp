#include "models/import/hf/write_packed.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/architecture.h"
#include "models/import/folder.h"
#include "models/import/hf/packed_blocks.h"

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

// The files of a folder other than weights and config.json.
constexpr const char* kOtherFiles[] = {"tokenizer.json",
                                       "tokenizer.model",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "added_tokens.json",
                                       "chat_template.jinja",
                                       "generation_config.json"};

bool is_tokenizer(std::string_view name) {
  return name.starts_with("tokenizer.") || name.starts_with("vocab.");
}

// The name of a file that is not part of a model folder; empty: there is none. Leftovers of a
// killed run are allowed: writing their file replaces them.
std::string unrelated_file_in(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const auto begins_with = [&](std::string_view part) { return name.starts_with(part); };
    if (!begins_with(".") && !begins_with("model.safetensors") && !begins_with("config.json") &&
        std::ranges::none_of(kOtherFiles, begins_with))
      return name;
  }
  return "";
}

class PackedWriter {
 public:
  PackedWriter(const std::string& folder, const ModelSource& source, PackedLayout layout)
      : folder_(folder), source_(source), awq_(layout == PackedLayout::awq) {
    read_config();
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
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](auto& a, auto& b) { return a.item > b.item; });
  }

  PackedFolder run(const std::function<void(uint64_t)>& done,
                   const std::vector<NamedText>& tokenizer) {
    std::error_code error, ignored;
    const bool is_new = std::filesystem::create_directory(folder_, error);
    const std::filesystem::path above =
        std::filesystem::path(folder_ + "/").parent_path().parent_path();
    if (error && !above.empty() && !std::filesystem::exists(above, ignored))
      fail(Exit::io, "{}: cannot be created: the folder {} does not exist", folder_,
           above.string());
    if (error && !std::filesystem::exists(folder_, ignored))
      fail(Exit::io, "{}: cannot be created: {}", folder_, error.message());
    try {
      write_weights(done);
    } catch (const Error&) {
      if (is_new) std::filesystem::remove(folder_, ignored);
      throw;
    }
    if (!copy_other_files())
      for (const NamedText& file : tokenizer) write_other_file(file.name, file.text);
    config_["quantization_config"] = quantization();
    write("config.json", config_.dump(2) + "\n");
    PackedFolder made{bits_, weights_.size(), why_eight_, has_tokenizer(), 0, grown_, {}};
    for (const Entry& e : entries_) made.bytes += e.bytes();
    for (const char* name : kOtherFiles)
      if (!written_.contains(name) && exists(folder_ + "/" + name)) made.stayed.push_back(name);
    return made;
  }

 private:
  struct Weight {
    const TensorSource* source;
    TensorSlot slot;
    std::string name;  // without ".weight"
  };
  struct Entry {
    std::string name, dtype;
    std::vector<int64_t> shape;
    int item;  // bytes of an element
    std::function<void(AtomicFile&)> write;

    uint64_t bytes() const {
      return std::accumulate(shape.begin(), shape.end(), uint64_t(item),
                             [](uint64_t all, int64_t n) { return all * uint64_t(n); });
    }
  };

  const char* name() const { return awq_ ? "AWQ" : "GPTQ"; }
  int codes_in_word() const { return 32 / bits_; }

  // --- config.json: the keys of the architecture, in the places where importers read them ---

  void read_config() {
    const Metadata& meta = source_.meta;
    const std::string architecture = meta.str("general.architecture");
    const bool window = meta.integer("model.sliding_window", 0) > 0;
    const std::pair<const char*, const char*> type =
        architecture == "qwen2"   ? std::pair("Qwen2ForCausalLM", "qwen2")
        : architecture == "qwen3" ? std::pair("Qwen3ForCausalLM", "qwen3")
        : window                  ? std::pair("MistralForCausalLM", "mistral")
                                  : std::pair("LlamaForCausalLM", "llama");
    if (architecture != "llama" && architecture != "qwen2" && architecture != "qwen3")
      fail(Exit::bad_file, "{}: general.architecture is {}, expected llama, qwen2 or qwen3 for {}",
           source_.path, escaped(architecture), name());
    model_ = model_of(meta);
    model_->tensors(slots_);
    if (meta.integer("model.rope_dim") != meta.integer("model.head_dim"))
      fail(Exit::bad_file, "{}: model.rope_dim is {}, expected head_dim {} for {}", source_.path,
           meta.integer("model.rope_dim"), meta.integer("model.head_dim"), name());
    config_["architectures"] = ordered_json::array({type.first});
    config_["model_type"] = type.second;
    config_["hidden_act"] = "silu";
    config_["torch_dtype"] = "float16";
    config_["tie_word_embeddings"] = !source_.find("output");
    if (architecture == "qwen3" || (architecture == "llama" && !window))
      config_["attention_bias"] = source_.find("layer.0.attn_q.bias") != nullptr;
    if (architecture == "llama" && !window)
      config_["mlp_bias"] = source_.find("layer.0.ffn_up.bias") != nullptr;
    if (meta.has("tokenizer.bos_id")) config_["bos_token_id"] = meta.integer("tokenizer.bos_id");
    const auto& ends = meta.ints("tokenizer.eos_ids");
    for (size_t i = 0; i < ends.size(); ++i) config_["eos_token_id"].push_back(ends[i]);
    put_keys(type.first);
  }
  void put_keys(const char* hf) {
    const auto reader =
        std::find_if(architectures().begin(), architectures().end(), [&](const Architecture& a) {
          return std::find(a.hf.begin(), a.hf.end(), hf) != a.hf.end();
        });
    const std::unique_ptr<Model> model = reader->make();
    Keys keys;
    model->keys(keys);
    for (const Key& key : keys.list) {
      key.read(source_.meta, key.ours);
      const Value* value = source_.meta.find(key.ours);
      if (!value || key.hf.empty() || (key.applies && !key.applies())) continue;
      if (key.ours == "model.rope_scaling" && source_.meta.str(key.ours) == "none") continue;
      if (key.ours == "model.sliding_window" && source_.meta.integer(key.ours) == 0) continue;
      const auto top = std::find_if(key.hf.begin(), key.hf.end(),
                                    [](auto& place) { return place.find('.') == place.npos; });
      if (top != key.hf.end() && key.ours != "model.rope_original_context")
        config_[*top] = json_of(key, *value);
      else
        config_["rope_scaling"][key.hf[0].substr(key.hf[0].find('.') + 1)] = json_of(key, *value);
    }
  }
  ordered_json json_of(const Key& key, const Value& value) const {
    if (auto* number = std::get_if<double>(&value.data)) {
      if (value.type != ValueType::f32) return *number;
      // the shortest decimal of an f32: 1e-05, not 9.999999747378752e-06
      return std::stod(fmt::format("{}", float(*number)));
    }
    if (auto* whole = std::get_if<int64_t>(&value.data)) {
      if (key.kind == Kind::flag) return *whole != 0;
      return *whole;
    }
    if (auto* text = std::get_if<std::string>(&value.data)) return *text;
    fail(Exit::bad_file, "{}: {} is a list, expected a number for {}", source_.path,
         escaped(key.ours), name());
  }

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

  void write_weights(const std::function<void(uint64_t)>& done) const {
    ordered_json tensors = {{"__metadata__", {{"format", "pt"}}}};
    uint64_t at = 0;
    for (const Entry& e : entries_) {
      tensors[e.name] = {
          {"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {at, at + e.bytes()}}};
      at += e.bytes();
    }
    std::string header = tensors.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    AtomicFile file(folder_ + "/model.safetensors");
    const uint64_t length = header.size();
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(std::as_bytes(std::span(header)));
    for (const Entry& e : entries_) {
      const uint64_t before = file.size();
      e.write(file);
      ENSURE(file.size() - before == e.bytes(), "a tensor has the bytes that the header says");
      if (done) done(e.bytes());
    }
    file.commit();
  }

  void write(const std::string& name, std::string_view text) {
    AtomicFile file(folder_ + "/" + name);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
    written_.insert(name);
  }

  // An existing file is kept.
  void write_other_file(const std::string& name, std::string_view text) {
    const std::string path = folder_ + "/" + name;
    if (!exists(path)) return write(name, text);
    if (!std::filesystem::is_regular_file(path)) return;
    const auto there = Mapping::open(path);
    if (std::ranges::equal(there->bytes(), std::as_bytes(std::span(text)))) written_.insert(name);
  }

  // Copies the files that packing does not change. Returns true if a tokenizer was among them.
  bool copy_other_files() {
    bool tokenizer = false;
    if (!is_folder(source_.path)) return false;
    for (const char* name : kOtherFiles) {
      const std::string from = source_.path + "/" + name;
      if (!exists(from)) continue;
      const auto text = Mapping::open(from);
      const auto bytes = text->bytes();
      write_other_file(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      tokenizer = tokenizer || is_tokenizer(name);
    }
    return tokenizer;
  }
  bool has_tokenizer() const {
    return std::ranges::any_of(kOtherFiles, [&](const char* name) {
      return is_tokenizer(name) && exists(folder_ + "/" + name);
    });
  }

  const std::string folder_;
  const ModelSource& source_;
  const bool awq_;
  std::unique_ptr<Model> model_;
  Slots slots_;
  ordered_json config_;
  std::vector<std::string> plain_;  // names of weights stored as floats
  std::vector<Weight> weights_;
  std::vector<Entry> entries_;
  std::vector<PackedFolder::Grown> grown_;
  std::set<std::string> written_;  // names of files other than the weights
  std::string why_eight_;
  int bits_ = 4;
  bool sorted_ = false, symmetric_ = true, has_zero_ = false;
};

}  // namespace

PackedFolder write_packed(const std::string& folder, const ModelSource& source, PackedLayout layout,
                          const std::function<void(uint64_t bytes)>& done,
                          const std::vector<NamedText>& tokenizer) {
  if (exists(source.path)) refuse_same_file(source.path, folder);
  if (exists(folder + "/config.json"))
    fail(Exit::usage, "{}: folder already holds a model, expected the name of a new folder",
         folder);
  if (exists(folder) && !is_folder(folder))
    fail(Exit::usage, "{}: path is a file, expected the name of a new folder", folder);
  if (const std::string other = unrelated_file_in(folder); !other.empty())
    fail(Exit::usage, "{}: folder holds other files ({}), expected a new or an empty folder",
         folder, escaped(other));
  return PackedWriter(folder, source, layout).run(done, tokenizer);
}

}  // namespace chaski
