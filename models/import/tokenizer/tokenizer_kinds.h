// The kinds of tokenizer, by the names that tokenizer.kind, GGUF's tokenizer.ggml.model and the
// model's type in a tokenizer.json have for them.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

struct TokenizerKind {
  std::string_view ours, gguf, json;  // json empty: there is none
};
// An export takes the first that is ours.
constexpr TokenizerKind kTokenizerKinds[] = {
    {"spm", "llama", "BPE"},      {"bpe", "gpt2", "BPE"},
    {"unigram", "t5", "Unigram"}, {"wordpiece", "bert", "WordPiece"},
    {"spm", "gemma4", ""},  // with merges in place of scores
};

// All names of a sort, each once: tokenizer_kinds(&TokenizerKind::gguf).
inline std::vector<std::string> tokenizer_kinds(std::string_view TokenizerKind::*sort) {
  std::vector<std::string> names;
  for (const TokenizerKind& kind : kTokenizerKinds)
    if (const std::string name(kind.*sort);
        !name.empty() && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  return names;
}

}  // namespace chaski
