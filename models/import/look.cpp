// Descriptions of files that chaski cannot run, for inspect, which says what they would need.
#include <set>
#include <utility>

#include "ggml-like-tensor/base/error.h"
#include "models/import/folder.h"
#include "models/import/gguf/gguf.h"
#include "models/import/gguf/gguf_names.h"
#include "models/import/hf/safetensors.h"
#include "models/import/import.h"
#include "models/import/json_file.h"

namespace chaski {
namespace {

TensorSource shown(std::string name, Format format, int64_t rows, int64_t cols) {
  return {{std::move(name), format, rows, cols}, nullptr};
}

void look_at_gguf(const std::string& path, ModelSource& source) {
  GgufFile file = read_gguf(path, true);
  source.kind = kind_of(file);
  for (auto& [key, value] : file.values)
    source.meta.set(key == "general.architecture" ? key : std::string(kForeignPrefix) + key, value);
  for (const GgufTensor& t : file.tensors)
    source.tensors.push_back(shown(our_tensor_name(t.name), t.format, t.rows, t.cols));
  for (GgufOther& t : file.others)
    source.unread.push_back({std::move(t.name), std::move(t.type), std::move(t.shape)});
}

// The values of config.json, and those inside its objects such as rope_scaling.
void take_config(const Json& config, const std::string& prefix, Metadata& meta) {
  config.each([&](const std::string& name, const Json& value) {
    if (value.is_string())
      meta.set_str(prefix + name, value.str());
    else if (value.is_integer())
      meta.set_int(prefix + name, value.integer());
    else if (value.is_object() && prefix == "hf.")
      take_config(value, prefix + name + ".", meta);
  });
}

void take_safetensors(const std::string& path, ModelSource& source) {
  for (const SafeTensor& t : read_safetensors(path).tensors)
    if (t.format && !t.shape.empty() && t.shape.size() <= 2)
      source.tensors.push_back(
          shown(t.name, *t.format, t.shape.size() == 2 ? t.shape[0] : 1, t.shape.back()));
    else
      source.unread.push_back({t.name, t.dtype, t.shape});
}

void look_at_folder(const std::string& folder, ModelSource& source) {
  expect_no_heads(folder);
  source.kind = "Hugging Face folder";
  const Json config = read_json(folder + "/config.json");
  take_config(config, "hf.", source.meta);
  const Json names = config["architectures"];
  if (names.is_array() && names.size() > 0 && names.at(0).is_string()) {
    source.meta.set_str("general.architecture", names.at(0).str());
    source.meta.set_strs("hf.architectures", {names.at(0).str()});
  }
  if (const std::string json = folder + "/tokenizer.json"; exists(json))
    source.meta.set_str("hf.tokenizer", read_json(json)["model"]["type"].str("BPE"));
  const std::string single = folder + "/model.safetensors", index = single + ".index.json";
  if (exists(single)) return take_safetensors(single, source);
  if (!exists(index)) return;
  std::set<std::string> shards;
  read_json(index)["weight_map"].each([&](const std::string&, const Json& shard) {
    if (is_plain_name(shard.str())) shards.insert(shard.str());
  });
  for (const std::string& shard : shards) take_safetensors(folder + "/" + shard, source);
}

}  // namespace

ModelSource look_at_model(const std::string& path) {
  ModelSource source;
  source.path = source.meta.origin = path;
  if (is_folder(path))
    look_at_folder(path, source);
  else
    look_at_gguf(path, source);
  return source;
}

}  // namespace chaski
