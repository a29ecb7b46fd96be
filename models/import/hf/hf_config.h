// config.json and generation_config.json of a Hugging Face folder, as the keys of metadata.h.
#pragma once
#include <string>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

struct HfConfig {
  bool of_text = false;          // of a model that reads more: images, sound
  bool tied = false;             // the head is the embedding, says the config
  int64_t vocab_size = 0;        // 0: not said
  int64_t bos_id = -1;           // -1: not said
  std::vector<int64_t> eos_ids;  // of both files, the model's own first
};

class Json;
class Model;

// Reads the keys of a model that no architecture is named for, and checks them as read_hf_config()
// does. `config` is what `meta.origin` names.
void read_hf_keys(const Json& config, Model& model, Metadata& meta);

// Writes general.architecture and model.* and checks them. Throws Error(bad_file | io); a feature
// that chaski's graphs do not have (another activation, scaling method, partial rotation) is an
// error here, not a wrong number later.
HfConfig read_hf_config(const std::string& folder, Metadata& meta);

}  // namespace chaski
