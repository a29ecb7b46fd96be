// Writes a model's tokenizer as the files of a Hugging Face folder, for a model that has no such
// files.
#pragma once
#include <string>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

struct TokenizerFiles {
  std::string tokenizer, config;  // tokenizer.json, tokenizer_config.json; empty: there are none
  std::string why_not;            // the reason, if there are none
};

// Only for byte-level BPE with merges, which the files can represent. Hugging Face's library then
// makes the same tokens as Tokenizer, with one difference: it drops a control character without a
// token, where Tokenizer uses U+FFFD. Other kinds have scores, which the format cannot store.
// Throws the errors of Tokenizer::make().
TokenizerFiles tokenizer_files(const Metadata& meta);

}  // namespace chaski
