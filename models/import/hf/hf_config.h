// config.json and generation_config.json of a Hugging Face folder, converted to metadata keys.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/metadata.h"
#include "models/import/json_file.h"

namespace chaski {

// Tensors that a model does not have, by the endings of their names, and the flag of config.json
// that says so: "mlp_bias is false".
struct HfUnwanted {
  std::vector<std::string> endings;
  std::string reason;
};

struct HfConfig {
  bool of_text = false;  // the text part of a model that also reads images or sound
  bool tied = false;     // the config says that the head is the embedding table
  bool untied = false;   // the config says that it is not; false for both: the config does not say
  int64_t vocab_size = 0;            // 0: not given
  int64_t bos_id = -1;               // -1: not given
  std::optional<Json> quantization;  // the quantization_config
  std::vector<HfUnwanted> unwanted;
  std::vector<int64_t> eos_ids;  // of both files, config.json first
};

class Model;

// Reads and checks the keys of a model that is not in the list of architectures (a draft head),
// like read_hf_config(). `meta.origin` names the file of `config`.
void read_hf_keys(const Json& config, Model& model, Metadata& meta);

// Writes general.architecture and model.* and checks them. Throws Error(bad_file | io). A feature
// that chaski's graphs do not have (another activation, scaling method or partial rotation) is an
// error here, so it cannot cause wrong logits later.
HfConfig read_hf_config(const std::string& folder, Metadata& meta);

}  // namespace chaski
