// The tokenizer of a Hugging Face folder, converted to metadata keys. Reads tokenizer.json, else
// tokenizer.model, else vocab.json with merges.txt; names and options from tokenizer_config.json;
// and the chat template.
#pragma once
#include <string>

#include "ggml-like-tensor/file/metadata.h"
#include "models/import/hf/hf_config.h"

namespace chaski {

// Writes nothing if the folder has no tokenizer. Throws Error(bad_file | io).
void read_hf_tokenizer(const std::string& folder, const HfConfig& config, Metadata& meta);

// The same for a single tokenizer file without a model.
void read_tokenizer_file(const std::string& path, Metadata& meta);

}  // namespace chaski
