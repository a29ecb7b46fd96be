// UTF-8 at the two places where text is not known to be whole: bytes typed by anybody (may be
// invalid) and bytes that a model emits token by token (a character may be spread over several
// tokens). Case, width and categories of characters are not here.
#pragma once
#include <string>
#include <string_view>

namespace chaski {

// U+FFFD, which stands for what is no character.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Utf8 { valid, invalid, unfinished };

struct Utf8Char {
  Utf8 kind;
  // In bytes, at least 1. Of an invalid one: the longest beginning of a character that does not go
  // on as it should (Unicode 15, table 3-8), for which one U+FFFD is put. Of an unfinished one:
  // what is left of the text, at most 3 bytes.
  int size;
};

// The first character of `text`, which is not empty. No overlong forms, no surrogates, nothing
// above U+10FFFF.
Utf8Char read_utf8(std::string_view text);

// Turns a stream of bytes into a stream of whole characters.
class Utf8Stream {
 public:
  // What is complete by now; an unfinished character at the end waits for the next call. Invalid
  // bytes become U+FFFD.
  std::string push(std::string_view bytes);
  // The stream is over: an unfinished character becomes U+FFFD.
  std::string flush();

 private:
  std::string tail_;  // at most 3 bytes
};

}  // namespace chaski
