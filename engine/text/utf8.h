// Decoding of UTF-8 that may be incomplete or invalid: bytes from a user, and bytes from a model,
// where a character may be spread over several tokens. characters.h has case and categories of
// characters.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace chaski {

// U+FFFD, the replacement for invalid bytes.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Utf8 { valid, invalid, unfinished };

struct Utf8Char {
  Utf8 kind;
  // Size in bytes, at least 1. For an invalid character: the longest valid prefix of a character
  // (Unicode 15, table 3-8), which is replaced by one U+FFFD. For an unfinished one: the rest of
  // the text, at most 3 bytes.
  int size;
};

// The first character of `text`, which must not be empty. Overlong forms, surrogates and values
// above U+10FFFF are invalid.
Utf8Char read_utf8(std::string_view text);
// The number of bytes before the first that is not UTF-8.
size_t valid_prefix(std::string_view text);

// Converts a stream of bytes into a stream of whole characters.
class Utf8Stream {
 public:
  // Returns the complete characters. An unfinished character at the end waits for the next call.
  // Invalid bytes become U+FFFD.
  std::string push(std::string_view bytes);
  // Ends the stream: an unfinished character becomes U+FFFD.
  std::string flush();

 private:
  std::string tail_;  // at most 3 bytes
};

}  // namespace chaski
