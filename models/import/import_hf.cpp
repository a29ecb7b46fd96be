// A Hugging Face folder: config.json, safetensors in one file or in shards, tokenizer files. Two
// layouts are not ours: q_proj and k_proj of the llama family have the two halves of a head where
// rope pairs its neighbours, and GPT-2's Conv1D weights are (in, out). Both are put right row by
// row while strips are packed.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "ggml-like-tensor/base/error.h"
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

struct Word {
  std::string_view theirs, ours;
};
constexpr Word kTop[] = {{"embed_tokens", "token_embd"}, {"norm", "output_norm"},
                         {"lm_head", "output"},          {"wte", "token_embd"},
                         {"wpe", "position_embd"},       {"ln_f", "output_norm"}};
constexpr Word kLlamaLayer[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"}};
constexpr Word kGpt2Layer[] = {{"ln_1", "attn_norm"},          {"attn.c_attn", "attn_qkv"},
                               {"attn.c_proj", "attn_output"}, {"ln_2", "ffn_norm"},
                               {"mlp.c_fc", "ffn_up"},         {"mlp.c_proj", "ffn_down"}};

template <size_t N>
std::string_view translate(const Word (&words)[N], std::string_view theirs) {
  for (auto& word : words)
    if (word.theirs == theirs) return word.ours;
  return {};
}

// "model.layers.3.mlp.up_proj.weight" -> "layer.3.ffn_up"; empty for a name that is none of a model
// with `layers` layers.
std::string our_name(std::string_view theirs, bool gpt2, int64_t layers) {
  drop_prefix(theirs, gpt2 ? "transformer." : "model.");
  const bool bias = drop_suffix(theirs, ".bias");
  if (!bias && !drop_suffix(theirs, ".weight")) return {};
  std::string name;
  if (drop_prefix(theirs, gpt2 ? "h." : "layers.")) {
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(theirs.data(), theirs.data() + theirs.size(), layer);
    if (error != std::errc() || layer < 0 || layer >= layers) return {};
    theirs.remove_prefix(end - theirs.data());
    if (!drop_prefix(theirs, ".")) return {};
    name = gpt2 ? translate(kGpt2Layer, theirs) : translate(kLlamaLayer, theirs);
    if (!name.empty()) name = fmt::format("layer.{}.{}", layer, name);
  } else {
    name = translate(kTop, theirs);
  }
  return name.empty() || !bias ? name : name + ".bias";
}

// Tables that older versions of transformers stored with the weights.
bool is_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

// Row 2i of a head is their row i, row 2i + 1 their row i + dim / 2.
int64_t half_split_row(int64_t row, int64_t dim) {
  const int64_t in_head = row % dim;
  return row - in_head + in_head / 2 + (in_head % 2) * (dim / 2);
}

class Import {
 public:
  explicit Import(const std::string& folder) : folder_(folder) {
    source_.path = folder;
    source_.kind = "Hugging Face folder";
    config_ = read_hf_config(folder, source_.meta);
    gpt2_ = source_.meta.str("general.architecture") == "gpt2";
  }

  ModelSource run() {
    read_files();
    for (auto& tensor : tensors_) take(tensor);
    settle_head();
    read_hf_tokenizer(folder_, config_, source_.meta);
    name_source();
    source_.storage = std::make_shared<const decltype(mappings_)>(std::move(mappings_));
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
      check_shard_name(shard);
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

  // A name, not a path: nothing outside the folder is opened.
  static void check_shard_name(const Json& shard) {
    const std::string& name = shard.str();
    const bool plain = name.find_first_of("/\\") == std::string::npos && escaped(name) == name;
    if (!plain || name.empty() || name.starts_with(".") || name.size() > 255)
      shard.wrong("a plain file name");
  }

  void take(const SafeTensor& t) {
    if (is_buffer(t.name)) return;
    const std::string name = our_name(t.name, gpt2_, source_.meta.integer("model.block_count"));
    if (name.empty())
      fail(Exit::bad_file, "{}: tensor {} is unexpected in a {} model of {} layers", t.file,
           escaped(t.name), source_.meta.str("general.architecture"),
           source_.meta.integer("model.block_count"));
    if (!names_.insert(name).second)
      fail(Exit::bad_file, "{}: tensor {} appears twice", t.file, escaped(t.name));
    if (!t.format)
      fail(Exit::bad_file, "{}: tensor {} has dtype {}, expected F32, F16 or BF16", t.file,
           escaped(t.name), t.dtype);
    if (t.shape.empty() || t.shape.size() > 2)
      fail(Exit::bad_file, "{}: tensor {} has shape ({}), expected 1 or 2 dimensions", t.file,
           escaped(t.name), fmt::join(t.shape, ", "));
    source_.tensors.push_back(shaped(name, t));
  }

  TensorSource shaped(const std::string& name, const SafeTensor& t) const {
    const bool matrix = t.shape.size() == 2;
    if (gpt2_ && matrix && name.starts_with("layer.")) return transposed(name, t);
    std::string_view stem = name;
    drop_suffix(stem, ".bias");
    if (stem.ends_with(".attn_q") || stem.ends_with(".attn_k")) return interleaved(name, t);
    return tensor_over(name, *t.format, t.data, matrix ? t.shape[0] : 1, t.shape.back());
  }

  // (in, out) to rows of outputs.
  static TensorSource transposed(const std::string& name, const SafeTensor& t) {
    const int64_t cols = t.shape[0], rows = t.shape[1];
    const size_t item = row_bytes(*t.format, 1);
    const std::byte* data = t.data;
    return tensor_of_rows(name, *t.format, rows, cols, [=](int64_t row, std::byte* dst) {
      for (int64_t c = 0; c < cols; ++c)
        std::memcpy(dst + c * item, data + (c * rows + row) * item, item);
    });
  }

  // A weight by rows, a bias by elements: the permutation is the same.
  TensorSource interleaved(const std::string& name, const SafeTensor& t) const {
    const bool matrix = t.shape.size() == 2, key = name.find(".attn_k") != std::string::npos;
    const int64_t dim = source_.meta.integer("model.head_dim");
    const int64_t heads = source_.meta.integer(key ? "model.head_count_kv" : "model.head_count");
    if (t.shape[0] != heads * dim)
      fail(Exit::bad_file, "{}: tensor {} has {} rows, expected {} heads of {}", t.file,
           escaped(t.name), t.shape[0], heads, dim);
    const size_t item = row_bytes(*t.format, matrix ? t.shape[1] : 1);
    const std::byte* data = t.data;
    auto copy = [=](int64_t row, std::byte* dst) {
      std::memcpy(dst, data + half_split_row(row, dim) * item, item);
    };
    if (matrix) return tensor_of_rows(name, *t.format, t.shape[0], t.shape[1], copy);
    return tensor_of_rows(name, *t.format, 1, t.shape[0],
                          [=, n = t.shape[0]](int64_t, std::byte* dst) {
                            for (int64_t i = 0; i < n; ++i) copy(i, dst + i * item);
                          });
  }

  // A tied model may store the matrix under either name, or under both.
  void settle_head() {
    auto& all = source_.tensors;
    auto head =
        std::find_if(all.begin(), all.end(), [](auto& t) { return t.info.name == "output"; });
    if (head == all.end()) return;
    if (!source_.find("token_embd"))
      head->info.name = "token_embd";
    else if (config_.tied)
      all.erase(head);
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
  bool gpt2_;
  std::vector<std::shared_ptr<const Mapping>> mappings_;
  std::vector<SafeTensor> tensors_;
  std::set<std::string> names_;
};

}  // namespace

ModelSource import_hf_folder(const std::string& folder) { return Import(folder).run(); }

}  // namespace chaski
