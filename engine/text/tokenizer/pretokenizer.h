// How byte-level BPE cuts a text into the stretches ("words") that merges never cross. The cuts are
// regular expressions that belong to the model: with other ones the same vocabulary gives other
// tokens. Merging itself is in tokenizer_bpe.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/pattern.h"
#include "ggml-like-tensor/file/lists.h"

namespace chaski {

class Pretokenizer {
 public:
  // By the name that GGUF files use in tokenizer.ggml.pre. Throws Error(bad_file) for a name that
  // is not in the table.
  static Pretokenizer named(std::string_view name, const std::string& origin);
  static std::vector<std::string> names();  // that named() takes
  // The patterns of that name as their model publishes them.
  static const Texts& published(std::string_view name, const std::string& origin);
  // Each pattern cuts the pieces that the one before it left. Throws Error(bad_file) for a pattern
  // that PCRE2 cannot compile.
  static Pretokenizer from_patterns(const Texts& patterns, const std::string& origin);

  // Pieces that together are `text`, none empty; a run of invalid UTF-8 is a piece of its own. Any
  // number of threads at once. Throws Error(bad_file) when a pattern needs more steps than a
  // reasonable one would.
  std::vector<std::string_view> split(std::string_view text) const;

  // `by` in place of every match of the first pattern in a text of valid UTF-8.
  std::string replace(std::string_view text, std::string_view by) const;

  // Two habits that go with a pre-tokenizer's name although they have nothing to do with cutting.
  // They hold for a file that does not say otherwise itself.
  bool whole_words_first() const { return whole_words_first_; }  // tokenizer.ignore_merges
  bool adds_bos() const { return adds_bos_; }

 private:
  std::string origin_;
  std::vector<Pattern> patterns_;
  bool whole_words_first_ = false, adds_bos_ = false;
};

}  // namespace chaski
