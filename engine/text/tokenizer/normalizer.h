// What a tokenizer does to a text before it cuts it: the steps of tokenizer.normalizer, in order.
// A step is a name, with its arguments behind it in the list:
//   nfc, nfd, nfkc, nfkd   Unicode's normal forms
//   lowercase              every letter becomes small
//   strip_marks            marks without a width of their own (Mn) go, so that after nfd an accent
//   strip_accents          all combining marks (M) go
//   strip_left, strip_right  white space at the end of the text goes
//   squeeze                spaces at both ends go, and of several in a row all but one
//   bert_clean             control characters and U+FFFD go, white space becomes a space
//   bert_han               a space on both sides of a Han character
//   replace FROM TO        a literal, everywhere
//   regex PATTERN TO       the same for a regular expression; TO is a literal
//   prepend TEXT           in front of a text that is not empty
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
  // Throws Error(bad_file) for a step that is not in the list above or lacks an argument.
  static Normalizer of(const Metadata& meta);

  bool empty() const { return steps_.empty(); }
  // Any number of threads at once. Bytes that are not UTF-8 become U+FFFD first, since the steps
  // are about characters.
  std::string apply(std::string_view text) const;

 private:
  using Step = std::function<std::string(std::string)>;
  std::vector<Step> steps_;
  std::string origin_;
};

}  // namespace chaski
