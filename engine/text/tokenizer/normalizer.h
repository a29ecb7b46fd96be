// What a tokenizer does to a text before splitting it: the steps of tokenizer.normalizer, in order.
// A step is a name, followed in the list by its arguments:
//   nfc, nfd, nfkc, nfkd   Unicode's normal forms.
//   lowercase              converts letters to lower case.
//   strip_marks            removes nonspacing marks (Mn); after nfd these are the accents.
//   strip_accents          removes all combining marks (M).
//   strip_left, strip_right  removes white space at that end of the text.
//   squeeze                removes spaces at both ends, and all but one of consecutive spaces.
//   bert_clean             removes control characters and U+FFFD; white space becomes a space.
//   bert_han               puts a space on both sides of a Han character.
//   replace FROM TO        replaces a literal everywhere.
//   regex PATTERN TO       replaces the matches of a regular expression; TO is a literal.
//   prepend TEXT           puts TEXT before a text that is not empty.
//   charsmap               SentencePiece's rules, compiled into tokenizer.charsmap
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ggml-like-tensor/file/metadata.h"

namespace chaski {

class Normalizer {
 public:
  // Throws Error(bad_file) for a step that is not in the list above or has no argument.
  static Normalizer of(const Metadata& meta);

  bool empty() const { return steps_.empty(); }
  // May be called by several threads. Bytes that are not UTF-8 become U+FFFD first, because the
  // steps work on characters.
  std::string apply(std::string_view text) const;

 private:
  using Step = std::function<std::string(std::string)>;
  std::vector<Step> steps_;
  std::string origin_;
};

}  // namespace chaski
