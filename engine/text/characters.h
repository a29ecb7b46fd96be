// Character properties by Unicode category, for tokenizers. The tables are utf8proc's.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace chaski {

// Calls f(character, its bytes) for every character of valid UTF-8.
template <class F>
void each_character(std::string_view text, F&& f);

bool is_white_space(int32_t c);  // the property White_Space
bool is_mark(int32_t c);         // M*
bool is_nonspacing_mark(int32_t c);
bool is_other(int32_t c);        // C*: control, format and unassigned characters
bool is_punctuation(int32_t c);  // P*, and ASCII characters that are neither letter nor digit
bool is_han(int32_t c);          // by BERT's definition
void append_utf8(std::string& out, int32_t c);
void append_lowercase(std::string& out, int32_t c);
std::string valid_utf8(std::string_view text);  // invalid bytes become U+FFFD

// The first character of valid UTF-8.
inline int32_t first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0);
  if (byte(0) < 0xE0) return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
  if (byte(0) < 0xF0) return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

// The end of the ASCII characters in `text` that begin at `at`.
inline size_t end_of_ascii(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] & 0x80) == 0) ++at;
  return at;
}

// The size of a character in bytes, by its first byte.
inline size_t character_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

template <class F>
void each_character(std::string_view text, F&& f) {
  for (size_t at = 0; at < text.size();) {
    const std::string_view bytes = text.substr(at, character_size(text[at]));
    f(first_character(bytes), bytes);
    at += bytes.size();
  }
}

}  // namespace chaski
