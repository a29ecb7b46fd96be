// A Hugging Face folder: config.json, safetensors in one file or in shards, tokenizer files.
// Names and orders of rows are the architecture's facts; rows are put right while strips are
// packed.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "ggml-like-tensor/base/error.h"
#include "models/architecture.h"
#include "models/import/affix.h"
#include "models/import/folder.h"
#include "models/import/hf_config.h"
#include "models/import/hf_tokenizer.h"
#include "models/import/import.h"
#include "models/import/json_file.h"
#include "models/import/row_tensors.h"
#include "models/import/safetensors.h"

namespace chaski {
namespace {

class Import {
 public:
  explicit Import(const std::string& folder) : folder_(folder) {
    source_.path = folder;
    source_.kind = "Hugging Face folder";
    config_ = read_hf_config(folder, source_.meta);
    const std::unique_ptr<Model> model = model_of(source_.meta);
    model->tensors(facts_);
    for (TensorSlot& slot : facts_.all())
      if (!slot.hf.empty()) slots_.emplace(slot.hf, slot);
  }

  ModelSource run() {
    read_files();
    for (auto& tensor : tensors_) take(tensor);
    settle_head();
    read_hf_tokenizer(folder_, config_, source_.meta);
    name_source();
    const auto mappings = std::make_shared<const decltype(mappings_)>(std::move(mappings_));
    source_.storage = mappings;
    source_.let_go = [mappings] {
      for (const auto& mapping : *mappings) mapping->let_go();
    };
    return std::move(source_);
  }

 private:
  void read_files() {
    const std::string index = folder_ + "/model.safetensors.index.json",
                      single = folder_ + "/model.safetensors";
    if (exists(index) && !exists(single)) return read_shards(index);
    add_file(single);
  }

  void add_file(const std::string& path) {
    SafetensorsFile file = read_safetensors(path);
    mappings_.push_back(std::move(file.mapping));
    for (auto& tensor : file.tensors) tensors_.push_back(std::move(tensor));
  }

  // The index must name every tensor of the shards, and the shards must have every tensor of the
  // index.
  void read_shards(const std::string& index) {
    const Json map = read_json(index)["weight_map"];
    std::map<std::string, std::string> wanted;
    std::set<std::string> shards;
    map.each([&](const std::string& name, const Json& shard) {
      if (!is_plain_name(shard.str())) shard.wrong("a plain file name");
      wanted[name] = folder_ + "/" + shard.str();
      shards.insert(shard.str());
    });
    for (auto& shard : shards) add_file(folder_ + "/" + shard);
    for (auto& tensor : tensors_) {
      auto place = wanted.find(tensor.name);
      if (place == wanted.end() || place->second != tensor.file)
        fail(Exit::bad_file, "{}: tensor {} is not in the weight_map of {}", tensor.file,
             escaped(tensor.name), index);
      wanted.erase(place);
    }
    if (!wanted.empty())
      fail(Exit::bad_file, "{}: weight_map has tensor {} in {}, which does not have it", index,
           escaped(wanted.begin()->first), escaped(wanted.begin()->second));
  }

  // The slots of "model.layers.3.mlp.up_proj.weight"; a tensor of several parts has several.
  auto slots_of(std::string_view theirs) const {
    if (config_.of_text) drop_prefix(theirs, "model."), drop_prefix(theirs, "language_model.");
    drop_prefix(theirs, facts_.hf_prefix);
    return slots_.equal_range(std::string(theirs));
  }

  // Causal masks and tables that older versions of transformers stored with the weights.
  bool is_unread(std::string_view name) const {
    return std::any_of(facts_.hf_unread.begin(), facts_.hf_unread.end(),
                       [&](const std::string& end) { return name.ends_with(end); });
  }

  // What reads images or sound.
  bool is_of_other_part(std::string_view name) const {
    return config_.of_text && name.find("language_model.") == name.npos;
  }

  void take(const SafeTensor& t) {
    const auto [first, last] = slots_of(t.name);
    if (first == last && (is_unread(t.name) || is_of_other_part(t.name))) return;
    if (first == last)
      fail(Exit::bad_file, "{}: tensor {} is unexpected in a {} model of {} layers", t.file,
           escaped(t.name), source_.meta.str("general.architecture"),
           source_.meta.integer("model.block_count"));
    if (!taken_.insert(first->first).second)
      fail(Exit::bad_file, "{}: tensor {} appears twice", t.file, escaped(t.name));
    if (!t.format)
      fail(Exit::bad_file, "{}: tensor {} has dtype {}, expected F32, F16 or BF16", t.file,
           escaped(t.name), t.dtype);
    if (t.shape.empty() || t.shape.size() > 2)
      fail(Exit::bad_file, "{}: tensor {} has shape ({}), expected 1 or 2 dimensions", t.file,
           escaped(t.name), fmt::join(t.shape, ", "));
    const bool matrix = t.shape.size() == 2;
    for (auto at = first; at != last; ++at) {
      const TensorSlot& slot = at->second;
      int64_t rows = matrix ? t.shape[0] : 1, cols = t.shape.back();
      if (matrix && slot.hf_order.transposed) std::swap(rows, cols);
      source_.tensors.push_back(
          tensor_for(slot, slot.hf_order, *t.format, t.data, rows, cols, t.file, t.name));
      if (slot.hf_less_one) add_one(source_.tensors.back());
    }
  }

  static void add_one(TensorSource& vector) {
    vector.read = [read = std::move(vector.read), n = vector.info.cols](int64_t first, int64_t last,
                                                                        std::byte* dst) {
      read(first, last, dst);
      auto* x = reinterpret_cast<float*>(dst);
      for (int64_t i = 0; i < n; ++i) x[i] += 1;
    };
  }

  // A tied model may store the matrix under either name, or under both.
  void settle_head() {
    auto& all = source_.tensors;
    const std::string table = name_with(Role::token_table), own = name_with(Role::head);
    auto head = std::find_if(all.begin(), all.end(), [&](auto& t) { return t.info.name == own; });
    if (head == all.end()) return;
    if (!source_.find(table))
      head->info.name = table;
    else if (config_.tied)
      all.erase(head);
  }

  std::string name_with(Role role) const {
    for (const auto& [hf, slot] : slots_)
      if (slot.role == role) return slot.name;
    return "";
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
  ModelSource source_;
  HfConfig config_;
  Slots facts_;
  std::multimap<std::string, TensorSlot> slots_;  // by their Hugging Face names
  std::vector<std::shared_ptr<const Mapping>> mappings_;
  std::vector<SafeTensor> tensors_;
  std::set<std::string> taken_;  // names in slots_
};

}  // namespace

ModelSource import_hf_folder(const std::string& folder) { return Import(folder).run(); }

}  // namespace chaski
