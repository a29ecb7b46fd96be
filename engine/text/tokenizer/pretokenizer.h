// Splits a text into words for byte-level BPE; merges never cross a word's border. The patterns
// belong to the model: with other patterns the same vocabulary gives other tokens.
// tokenizer_bpe.cpp does the merging.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/pattern.h"
#include "ggml-like-tensor/file/lists.h"

namespace chaski {

class Pretokenizer {
 public:
  // Selects by the name in tokenizer.ggml.pre of GGUF files. Throws Error(bad_file) for an unknown
  // name.
  static Pretokenizer named(std::string_view name, const std::string& origin);
  static std::vector<std::string> names();  // the names that named() accepts
  // The patterns of that name as their model publishes them.
  static const Texts& published(std::string_view name, const std::string& origin);
  // Each pattern splits the pieces that the one before it left. Throws Error(bad_file) for a
  // pattern that PCRE2 cannot compile.
  static Pretokenizer from_patterns(const Texts& patterns, const std::string& origin);

  // Returns non-empty pieces that together are `text`; a run of invalid UTF-8 is a piece of its
  // own. May be called by several threads. Throws Error(bad_file) when a pattern needs more steps
  // than a reasonable pattern would.
  std::vector<std::string_view> split(std::string_view text) const;

  // Replaces every match of the first pattern in a text of valid UTF-8 by `by`.
  std::string replace(std::string_view text, std::string_view by) const;

  // Two tokenizer settings that follow from a pre-tokenizer's name. They are the defaults for a
  // file that does not have the settings.
  bool whole_words_first() const { return whole_words_first_; }  // tokenizer.ignore_merges
  bool adds_bos() const { return adds_bos_; }

 private:
  std::string origin_;
  std::vector<Pattern> patterns_;
  bool whole_words_first_ = false, adds_bos_ = false;
};

}  // namespace chaski
