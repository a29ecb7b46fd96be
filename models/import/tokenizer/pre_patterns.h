// The published regular expressions of byte-level pre-tokenizers, as far as importers have to know
// them by sight. How they are run is the tokenizer's business.
#pragma once
#include <string>
#include <string_view>

#include "ggml-like-tensor/file/lists.h"

namespace chaski {

// openai/gpt-2, encoder.py; what Hugging Face's ByteLevel(use_regex) stands for.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// meta-llama/llama3, tokenizer.py.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// A tokenizer that does not split at all.
constexpr std::string_view kWholeTextPattern = R"([\s\S]+)";

// The name GGUF has for a list of patterns; "default" when it has none.
inline std::string gguf_name_of(const Texts& patterns) {
  if (patterns.size() != 1) return "default";
  return patterns[0] == kGpt2Pattern     ? "gpt-2"
         : patterns[0] == kLlama3Pattern ? "llama-bpe"
                                         : "default";
}

}  // namespace chaski
