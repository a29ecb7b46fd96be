#include "models/import/hf/heads.h"

#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "models/import/folder.h"
#include "models/import/hf/hf_config.h"
#include "models/import/hf/safetensors.h"

namespace chaski {

namespace {

bool names_itself(const Json& config, const std::vector<const char*>& parts) {
  bool found = false;
  config["architectures"].each([&](const Json& name) {
    for (const char* part : parts) found |= name.str().find(part) != std::string::npos;
  });
  return found;
}

bool says_eagle(const Json& config) {
  return (config.has("model_type") && config["model_type"].str() == "eagle") ||
         names_itself(config, {"Eagle", "EAGLE"});
}

}  // namespace

void each_tensor_name(const std::string& folder,
                      const std::function<void(const std::string&, const std::string&)>& fn) {
  const std::string single = folder + "/" + kEagleFile, index = folder + "/" + kEagleIndex;
  if (exists(single) || !exists(index)) {
    for (const SafeTensor& t : read_safetensors(single).tensors) fn(t.name, single);
    return;
  }
  read_json(index)["weight_map"].each([&](const std::string& name, const Json& shard) {
    if (!is_plain_name(shard.str())) shard.wrong("a plain file name");
    fn(name, folder + "/" + shard.str());
  });
}

HeadsFolder::HeadsFolder(const std::string& path) : path_(path) {
  if (!is_folder(path)) return;
  if (exists(path + "/" + kMedusaFile) || exists(path + "/" + kMedusaPickle))
    kind_ = HeadsKind::medusa;
  try {
    if (exists(path + "/config.json")) config_ = read_json(path + "/config.json");
    if (kind_ == HeadsKind::medusa || !config_) return;
    kind_ = config_->has("medusa_num_heads") ? HeadsKind::medusa : eagle_kind();
  } catch (const Error&) {
    // The importer, or that of the model, reports what is wrong with the folder.
  }
}

HeadsKind HeadsFolder::eagle_kind() {
  const Json& config = *config_;
  const HeadsKind eagle = config.has("draft_vocab_size") || names_itself(config, {"agle3", "AGLE3"})
                              ? HeadsKind::eagle3
                              : HeadsKind::eagle1;
  if (says_eagle(config)) return eagle;
  if (!exists(path_ + "/" + kEagleFile) && !exists(path_ + "/" + kEagleIndex)) {
    const bool one =
        exists(path_ + "/" + kEaglePickle) && config["num_hidden_layers"].integer(0) == 1;
    return one ? eagle : HeadsKind::none;
  }
  HeadsKind kind = HeadsKind::none;
  each_tensor_name(path_, [&](const std::string& name, const std::string&) {
    if (name == "fc.weight" || name == "model.fc.weight") kind = eagle;
    if (is_of_next_layer(name)) kind = HeadsKind::next_layer;
    if (name.ends_with("mtp.pre_fc_norm_hidden.weight") && is_of_further_layer(name))
      kind = HeadsKind::delta_next;
    if (!is_of_further_layer(name)) has_model_ = true;
  });
  return kind;
}

}  // namespace chaski
