// A model's tokenizer as the files that a Hugging Face folder has, for a model that came without
// such files.
#pragma once
#include <string>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

struct TokenizerFiles {
  std::string tokenizer, config;  // tokenizer.json, tokenizer_config.json; empty: there are none
  std::string why_not;            // in that case
};

// Of byte-level BPE with merges, which they can say exactly: Hugging Face's library makes the same
// tokens of a text as Tokenizer does, but leaves a control character out that has no token, where
// Tokenizer puts U+FFFD. Other kinds have scores, for which there is no place.
// Throws what Tokenizer::make() throws.
TokenizerFiles tokenizer_files(const Metadata& meta);

}  // namespace chaski
