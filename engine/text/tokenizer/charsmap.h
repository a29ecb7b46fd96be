// SentencePiece's compiled normalization rules: a double-array trie from character sequences to
// replacements (google/sentencepiece, normalizer.cc; the trie is Darts-clone's). The file is
// untrusted, so every index is checked when it is used.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ggml-like-tensor/file/lists.h"

namespace chaski {

class CharsMap {
 public:
  // `bytes` are those of precompiled_charsmap. Throws Error(bad_file) for impossible sizes.
  CharsMap(const Ints& bytes, const std::string& origin);
  // Normalizes valid UTF-8. At each position the longest matching rule applies; without one, the
  // character stays.
  std::string apply(std::string_view text) const;

 private:
  struct Rule {
    size_t size = 0;  // bytes that the rule replaces; 0: no rule matches
    std::string_view by;
  };
  Rule rule_at(std::string_view text) const;
  uint32_t unit(size_t index) const { return index < trie_.size() ? trie_[index] : 0; }

  std::vector<uint32_t> trie_;
  std::string texts_;  // replacements, each with a zero byte at its end
};

}  // namespace chaski
