// The kinds of tokenizer, under their names in tokenizer.kind, in GGUF's tokenizer.ggml.model and
// in the model type of tokenizer.json.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

struct TokenizerKind {
  std::string_view ours, gguf, json;  // json empty: it has no such type
};
// An export uses the first entry with our kind.
constexpr TokenizerKind kTokenizerKinds[] = {
    {"spm", "llama", "BPE"},      {"bpe", "gpt2", "BPE"},
    {"unigram", "t5", "Unigram"}, {"wordpiece", "bert", "WordPiece"},
    {"spm", "gemma4", ""},  // with merges instead of scores
    {"rwkv", "rwkv", ""},         {"plamo2", "plamo2", ""},
};

// All names of a column, each once: tokenizer_kinds(&TokenizerKind::gguf).
inline std::vector<std::string> tokenizer_kinds(std::string_view TokenizerKind::*sort) {
  std::vector<std::string> names;
  for (const TokenizerKind& kind : kTokenizerKinds)
    if (const std::string name(kind.*sort);
        !name.empty() && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  return names;
}

}  // namespace chaski
