// SentencePiece's compiled normalization rules: a double-array trie from character sequences to
// their replacements (google/sentencepiece, normalizer.cc; the trie is Darts-clone's). Read from
// files that nobody vouches for: every index is checked when it is used.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ggml-like-tensor/file/lists.h"

namespace chaski {

class CharsMap {
 public:
  // The bytes of precompiled_charsmap. Throws Error(bad_file) for sizes that cannot be.
  CharsMap(const Ints& bytes, const std::string& origin);
  // Of valid UTF-8: at every place the longest rule that applies, else the character itself.
  std::string apply(std::string_view text) const;

 private:
  struct Rule {
    size_t size = 0;  // bytes that it replaces; 0: there is none
    std::string_view by;
  };
  Rule rule_at(std::string_view text) const;
  uint32_t unit(size_t index) const { return index < trie_.size() ? trie_[index] : 0; }

  std::vector<uint32_t> trie_;
  std::string texts_;  // replacements, a zero behind each
};

}  // namespace chaski
