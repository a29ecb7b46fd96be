// The tokenizer of a Hugging Face folder as the keys of metadata.h: tokenizer.json, else
// tokenizer.model, else vocab.json with merges.txt; names and switches from tokenizer_config.json;
// the chat template.
#pragma once
#include <string>

#include "ggml-like-tensor/file/metadata.h"
#include "models/import/hf/hf_config.h"

namespace chaski {

// Nothing is written when the folder has no tokenizer at all. Throws Error(bad_file | io).
void read_hf_tokenizer(const std::string& folder, const HfConfig& config, Metadata& meta);

// The same for one tokenizer file that no model is beside.
void read_tokenizer_file(const std::string& path, Metadata& meta);

}  // namespace chaski
