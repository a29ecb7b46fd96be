// A Hugging Face folder: config.json, safetensors in one file or in shards, tokenizer files. The
// architecture declares names and row orders; rows are reordered while strips are packed.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <system_error>

#include "ggml-like-tensor/base/error.h"
#include "models/architecture.h"
#include "models/import/affix.h"
#include "models/import/folder.h"
#include "models/import/hf/eagle.h"
#include "models/import/hf/hf_config.h"
#include "models/import/hf/hf_packed.h"
#include "models/import/hf/hf_rows.h"
#include "models/import/hf/hf_tokenizer.h"
#include "models/import/hf/safetensors.h"
#include "models/import/import.h"
#include "models/import/json_file.h"
#include "models/import/row_tensors.h"

namespace chaski {
namespace {

class HfImport {
 public:
  explicit HfImport(const std::string& folder) : folder_(folder) {
    source_.path = folder;
    source_.kind = "Hugging Face folder";
    config_ = read_hf_config(folder, source_.meta);
    const std::unique_ptr<Model> model = model_of(source_.meta);
    read_files();
    expect_layers(*model, tensors_.size(), folder_);
    model->tensors(facts_);
    list_slots();
  }

  // Reads only the layer for one more token.
  HfImport(const HeadsFolder& found, DeltaNext& layer) : folder_(found.path()), only_next_(true) {
    source_.path = folder_;
    source_.kind = kNextLayer;
    config_ = read_hf_config(folder_, source_.meta);
    config_.of_text = false;  // names of the layer have no prefix of the text part
    const Json whole = found.config(),
               config = whole.has("text_config") ? whole["text_config"] : whole;
    if (const Json n = config["mtp_num_hidden_layers"]; n.integer(1) != 1) n.wrong("1");
    if (const Json own = config["mtp_use_dedicated_embeddings"]; own.boolean(false))
      own.wrong("false");
    layer.read(source_.meta);
    layer.tensors(facts_);
    list_slots();
  }

  ModelSource run() {
    std::erase_if(tensors_, [&](const SafeTensor& t) {
      std::string_view name = t.name;
      drop_prefix(name, facts_.hf_prefix);
      return is_of_next_layer(t.name) || is_of_layer_from(name, "layers.", facts_.further_layers);
    });
    for (auto& tensor : take_packed(config_, tensors_)) take(std::move(tensor));
    for (auto& tensor : tensors_) names_.insert(tensor.name);
    for (auto& tensor : tensors_) take(tensor);
    settle_numbers();
    add_constants();
    stack_experts();
    settle_head();
    read_hf_tokenizer(folder_, config_, source_.meta);
    name_source();
    return finished();
  }

  ModelSource run_next() {
    read_files();
    for (const SafeTensor& t : tensors_)
      if (t.format) expect_finite(t);
    for (auto& tensor : take_packed(config_, tensors_)) take(std::move(tensor));
    for (auto& tensor : tensors_) take(tensor);
    stack_experts();
    for (const TensorSlot& slot : facts_.all())
      if (!slot.optional && !source_.find(slot.name))
        fail(Exit::bad_file, "{}: tensor {}{} is missing, expected it in {}", folder_,
             facts_.hf_prefix, slot.hf, kNextLayer);
    return finished();
  }

 private:
  static constexpr const char* kNextLayer = "a layer that predicts one token more";

  void list_slots() {
    for (const TensorSlot& slot : facts_.all()) {
      if (slot.hf.find('*') != std::string::npos)
        one_by_one_.emplace(slot.hf, slot);
      else if (!slot.hf.empty())
        slots_.emplace(slot.hf, slot);
      if (slot.hf_else.empty()) continue;
      TensorSlot one = slot;
      one.hf_order = {};
      one_by_one_.emplace(slot.hf_else, one);
    }
  }

  ModelSource finished() {
    const auto mappings = std::make_shared<const decltype(mappings_)>(std::move(mappings_));
    source_.storage = mappings;
    source_.drop_pages = [mappings] {
      for (const auto& mapping : *mappings) mapping->drop_pages();
    };
    return std::move(source_);
  }

  // Experts that the file has one by one are read one by one, and then put one below the other. An
  // expert gets a slot when the file has a tensor of its name: config.json alone could ask for 50
  // million of them.
  void list_expert(const std::string& theirs) {
    for (size_t begin = 0, end; begin < theirs.size(); begin = end + 1) {
      end = std::min(theirs.find('.', begin), theirs.size());
      const std::string number = theirs.substr(begin, end - begin);
      int64_t i = 0;
      const auto [last, error] = std::from_chars(number.data(), number.data() + number.size(), i);
      if (error != std::errc() || std::to_string(i) != number) continue;
      std::string starred = theirs;
      const auto [slot, end_slot] =
          one_by_one_.equal_range(starred.replace(begin, number.size(), "*"));
      for (auto at = slot; at != end_slot; ++at)
        if (i >= 0 && i < at->second.experts) add_expert(at->second, theirs, i);
    }
  }
  void add_expert(const TensorSlot& slot, const std::string& theirs, int64_t i) {
    TensorSlot one = slot;
    one.name = fmt::format("{}.{}", slot.name, i), one.hf = theirs;
    one.rows = slot.rows / slot.experts;
    experts_[one.name] = {slot.name, i};
    slots_.emplace(theirs, one);
  }

  void read_files() {
    SafetensorsFolder all = read_safetensors_folder(
        folder_, [&](const std::string& name) { return !only_next_ || is_of_further_layer(name); });
    mappings_ = std::move(all.mappings), tensors_ = std::move(all.tensors);
  }

  // The slots of a name like "model.layers.3.mlp.up_proj.weight". A tensor of several parts has
  // several slots.
  auto slots_of(std::string_view theirs) {
    if (config_.of_text || !facts_.hf_other_parts.empty()) {
      const std::string_view whole = theirs;
      drop_prefix(theirs, "model.");
      if (!drop_prefix(theirs, "language_model.") && !config_.of_text) theirs = whole;
    }
    if (only_next_) drop_prefix(theirs, "model.");
    drop_prefix(theirs, facts_.hf_prefix);
    const std::string name(theirs);
    if (!slots_.contains(name)) list_expert(name);
    return slots_.equal_range(name);
  }

  // Causal masks and tables that older versions of transformers stored with the weights.
  bool is_unread(std::string_view name) const {
    return std::any_of(facts_.hf_unread.begin(), facts_.hf_unread.end(),
                       [&](const std::string& end) { return name.ends_with(end); });
  }

  // True for tensors of the parts that read images or sound.
  bool is_of_other_part(std::string_view name) const {
    const auto begins = [&](const std::string& part) { return name.starts_with(part); };
    return std::ranges::any_of(facts_.hf_other_parts, begins) ||
           (config_.of_text && name.find("language_model.") == name.npos);
  }

  // The slots of a tensor. Throws if it has none or was seen before under another name.
  auto slots_for(const std::string& name, const std::string& file) {
    const auto slots = slots_of(name);
    if (slots.first == slots.second)
      fail(Exit::bad_file, "{}: tensor {} is unexpected in {}", file, escaped(name),
           only_next_
               ? kNextLayer
               : fmt::format("a {} model of {} layers", source_.meta.str("general.architecture"),
                             source_.meta.integer("model.block_count")));
    if (!used_.insert(slots.first->first).second)
      fail(Exit::bad_file, "{}: tensor {} appears twice", file, escaped(name));
    return slots;
  }

  // One of Slots::hf_numbers.
  bool took_number(const SafeTensor& t) {
    for (const Slots::HfNumber& number : facts_.hf_numbers) {
      std::string_view layer = t.name;
      const size_t star = number.hf.find('*');
      drop_prefix(layer, facts_.hf_prefix);
      if (!drop_prefix(layer, number.hf.substr(0, star)) ||
          !drop_suffix(layer, number.hf.substr(star + 1)))
        continue;
      size_t i = 0;
      const auto [end, error] = std::from_chars(layer.data(), layer.data() + layer.size(), i);
      const auto layers = size_t(source_.meta.integer("model.block_count"));
      if (error != std::errc() || end != layer.data() + layer.size() || i >= layers) continue;
      if (!t.format || t.bytes().size() != row_bytes(*t.format, 1))
        fail(Exit::bad_file, "{}: tensor {} has dtype {} and shape ({}), expected one number",
             t.file, escaped(t.name), t.dtype, fmt::join(t.shape, ", "));
      auto& list = numbers_[number.key];
      list.resize(layers, std::nan(""));
      float value = 0;
      decode_plain_row(*t.format, t.data, 1, &value);
      list[i] = value;
      return true;
    }
    return false;
  }
  void settle_numbers() {
    for (const Slots::HfNumber& number : facts_.hf_numbers) {
      const std::vector<double>& list = numbers_[number.key];
      const auto missing = std::ranges::find_if(list, [](double x) { return std::isnan(x); });
      if (list.empty() || missing != list.end())
        fail(Exit::bad_file, "{}: tensor {} of layer {} is missing, expected it in every layer",
             folder_, number.hf, missing - list.begin());
      source_.meta.set_floats(number.key, list);
    }
  }

  void add_constants() {
    for (const TensorSlot& slot : facts_.all())
      if (slot.hf_constant)
        source_.tensors.push_back(
            {{slot.name, Format::f32, 1, slot.cols},
             [n = slot.cols, value = *slot.hf_constant](int64_t, int64_t, std::byte* dst) {
               std::fill_n(reinterpret_cast<float*>(dst), n, value);
             }});
  }

  void take(PackedTensor t) {
    const auto [first, last] = slots_for(t.name, t.file);
    for (auto at = first; at != last; ++at) {
      RowOrder order = at->second.hf_order;
      if (at->second.role == Role::experts) order.transposed = false;  // packed along the inputs
      source_.tensors.push_back(
          matrix_for(at->second, order, t.format, t.read, t.rows, t.cols, t.file, t.name));
    }
    if (t.order.empty()) return;
    for (auto at = first; at != last; ++at) {
      if (at->second.role != Role::matmul)
        fail(Exit::bad_file,
             "{}: tensor {} has column groups that are not contiguous, expected contiguous groups, "
             "{}",
             t.file, escaped(t.name), kUnpackedInstead);
      source_.tensors.push_back({{at->second.name + std::string(kOrder), Format::f32, 1, t.cols},
                                 [order = t.order](int64_t, int64_t, std::byte* dst) {
                                   std::memcpy(dst, order.data(), order.size() * sizeof(float));
                                 }});
    }
  }

  void take(const SafeTensor& t) {
    if (took_number(t)) return;
    const auto found = slots_of(t.name);
    if (found.first == found.second && (is_unread(t.name) || is_of_other_part(t.name))) return;
    const auto [first, last] = slots_for(t.name, t.file);
    if (is_unwanted(t)) return;
    if (is_ternary(t, first->second)) {
      if (!names_.count(t.name + "_scale"))
        fail(Exit::bad_file, "{}: tensor {}_scale is missing, expected the scale of {}", t.file,
             escaped(t.name), escaped(t.name));
      source_.tensors.push_back(ternary(first->second, t));
      return;
    }
    if (first->second.hf_ternary && t.format && t.shape.size() == 2 &&
        !names_.count(t.name + "_scale")) {
      std::ranges::move(rounded_to_ternary(first->second, t), std::back_inserter(source_.tensors));
      return;
    }
    if (!t.format)
      fail(Exit::bad_file, "{}: tensor {} has dtype {}, expected F32, F16, BF16 or F8_E4M3", t.file,
           escaped(t.name), t.dtype);
    // A vector may have further dimensions of 1.
    std::vector<int64_t> shape = t.shape;
    if (first->second.rows == 1 &&
        std::ranges::count_if(shape, [](int64_t n) { return n > 1; }) == 1)
      shape = {std::ranges::max(shape)};
    const bool stacked = shape.size() == 3 && first->second.experts == shape[0];
    // A convolution by channels: (channels, 1, taps).
    const bool flat = shape.size() == 3 && shape[1] == 1 && first->second.matrix_rows > 1;
    if (shape.empty() || (shape.size() > 2 && !stacked && !flat))
      fail(Exit::bad_file, "{}: tensor {} has shape ({}), expected 1 or 2 dimensions", t.file,
           escaped(t.name), fmt::join(t.shape, ", "));
    const bool matrix = shape.size() >= 2;
    for (auto at = first; at != last; ++at) {
      const TensorSlot& slot = at->second;
      if (slot.role == Role::experts && slot.hf_order.transposed) {
        source_.tensors.push_back(transposed_experts(slot, t));
        continue;
      }
      int64_t rows = stacked ? shape[0] * shape[1] : matrix ? shape[0] : 1, cols = shape.back();
      if (matrix && slot.hf_order.transposed) std::swap(rows, cols);
      if (slot.matrix_rows > 1 && rows == slot.matrix_rows) cols *= rows, rows = 1;
      if (slot.hf_rows > 0 && rows != slot.hf_rows)
        fail(Exit::bad_file, "{}: tensor {} has {} rows, expected {}", t.file, escaped(t.name),
             rows, slot.hf_rows);
      if (slot.hf_rows > 0) {
        source_.tensors.push_back(padded_with_first_row(slot, *t.format, t.data, cols));
        continue;
      }
      source_.tensors.push_back(
          tensor_for(slot, slot.hf_order, *t.format, t.data, rows, cols, t.file, t.name));
      if (const float less = slot.hf_less; less != 0)
        change(source_.tensors.back(), [less](float x) { return x + less; });
      if (slot.hf_minus_exp)
        change(source_.tensors.back(), [](float x) { return float(-std::exp(double(x))); });
      if (slot.hf_unit_rows && matrix)
        source_.tensors.back() = with_unit_rows(slot, *t.format, t.data, rows, cols);
    }
  }

  // transformers drops a tensor that config.json says the model does not have. Packed models have
  // biases of zeros, which change nothing.
  bool is_unwanted(const SafeTensor& t) const {
    for (const HfUnwanted& those : config_.unwanted)
      for (const std::string& ending : those.endings) {
        if (!t.name.ends_with(ending)) continue;
        if (t.bytes().find_first_not_of('\0') == std::string_view::npos) return true;
        fail(Exit::bad_file, "{}/config.json: {}, expected true: the file has the tensor {}",
             folder_, those.reason, escaped(t.name));
      }
    return false;
  }

  void stack_experts() {
    std::map<std::string, std::map<int64_t, TensorSource>> read;
    std::erase_if(source_.tensors, [&](TensorSource& t) {
      const auto of = experts_.find(t.info.name);
      return of != experts_.end() &&
             read[of->second.first].try_emplace(of->second.second, std::move(t)).second;
    });
    for (const TensorSlot& slot : facts_.all()) {
      const auto found = read.find(slot.name);
      if (found == read.end()) continue;
      std::vector<TensorSource> experts;
      for (auto& [i, one] : found->second) experts.push_back(std::move(one));
      source_.tensors.push_back(stack_of(slot, std::move(experts), folder_));
    }
  }

  // A model with a tied head may store the matrix under either name or under both. A head that
  // differs from the table is used, whatever config.json says, as transformers does.
  void settle_head() {
    const Stored table = stored(Role::token_table), head = stored(Role::head);
    if (!table.slot || !head.slot) return;
    auto& all = source_.tensors;
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&](auto& t) { return t.info.name == head.slot->name; });
    if (at == all.end()) {
      if (config_.untied && head.slot->optional)
        fail(Exit::bad_file,
             "{}/config.json: tie_word_embeddings is false, expected true or a tensor {}", folder_,
             head.slot->hf);
    } else if (!source_.find(table.slot->name)) {
      at->info.name = table.slot->name;
    } else if (config_.tied &&
               (!head.tensor || !table.tensor || head.tensor->bytes() == table.tensor->bytes())) {
      all.erase(at);
    }
  }

  // The slot of a role, and the tensor of the file, unless it is packed.
  struct Stored {
    const TensorSlot* slot = nullptr;
    const SafeTensor* tensor = nullptr;
  };
  Stored stored(Role role) {
    Stored found;
    for (const auto& [hf, slot] : slots_)
      if (slot.role == role) found.slot = &slot;
    for (const SafeTensor& t : tensors_)
      if (const auto [first, last] = slots_of(t.name); first != last && first->second.role == role)
        found.tensor = &t;
    return found;
  }

  void name_source() {
    std::error_code ignored;
    auto path = std::filesystem::absolute(folder_, ignored).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    source_.meta.origin = folder_;
    source_.meta.set_str("general.name", path.filename().string());
    source_.meta.set_str("source.file", path.filename().string());
    source_.meta.set_str("source.kind", source_.kind);
  }

  std::string folder_;
  bool only_next_ = false;  // only the layer for one more token is read
  ModelSource source_;
  HfConfig config_;
  Slots facts_;
  std::multimap<std::string, TensorSlot> slots_;  // by Hugging Face names
  std::multimap<std::string, TensorSlot>
      one_by_one_;  // experts with a tensor each, by names with *
  std::map<std::string, std::pair<std::string, int64_t>> experts_;  // their slot and number
  std::vector<std::shared_ptr<const Mapping>> mappings_;
  std::vector<SafeTensor> tensors_;
  std::set<std::string> names_;                         // of tensors_
  std::set<std::string> used_;                          // names in slots_ that were used
  std::map<std::string, std::vector<double>> numbers_;  // by keys: Slots::hf_numbers
};

}  // namespace

ModelSource import_hf_folder(const std::string& folder) { return HfImport(folder).run(); }

ModelSource import_delta_next(const HeadsFolder& folder, DeltaNext& layer) {
  return HfImport(folder, layer).run_next();
}

}  // namespace chaski
