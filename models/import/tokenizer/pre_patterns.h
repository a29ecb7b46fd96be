// The published regular expressions of byte-level pre-tokenizers that importers must recognise. The
// tokenizer runs them.
#pragma once
#include <string>
#include <string_view>

#include "ggml-like-tensor/file/lists.h"

namespace chaski {

// openai/gpt-2, encoder.py; Hugging Face's ByteLevel(use_regex) means this pattern.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// meta-llama/llama3, tokenizer.py.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// For a tokenizer that does not split at all.
constexpr std::string_view kWholeTextPattern = R"([\s\S]+)";

// GGUF's name for a list of patterns; "default" if it has none.
inline std::string gguf_name_of(const Texts& patterns) {
  if (patterns.size() != 1) return "default";
  return patterns[0] == kGpt2Pattern     ? "gpt-2"
         : patterns[0] == kLlama3Pattern ? "llama-bpe"
                                         : "default";
}

}  // namespace chaski
