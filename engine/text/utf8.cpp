// A decoder of our own, because utf8proc does not distinguish an invalid from an incomplete
// character.
#include "engine/text/utf8.h"

#include "engine/text/characters.h"

namespace chaski {

namespace {

struct Lead {
  int size;  // of the whole character; 0: no character begins with this byte
  // range of the second byte; excludes overlong forms, surrogates and values above U+10FFFF
  unsigned low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) return {3, byte == 0xE0 ? 0xA0u : 0x80u, byte == 0xED ? 0x9Fu : 0xBFu};
  if (byte < 0xF5) return {4, byte == 0xF0 ? 0x90u : 0x80u, byte == 0xF4 ? 0x8Fu : 0xBFu};
  return {0, 0, 0};
}

}  // namespace

Utf8Char read_utf8(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.size == 0) return {Utf8::invalid, 1};
  for (int i = 1; i < lead.size; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Utf8::unfinished, i};
    const unsigned byte = static_cast<unsigned char>(text[i]);
    if (byte < (i == 1 ? lead.low : 0x80u) || byte > (i == 1 ? lead.high : 0xBFu))
      return {Utf8::invalid, i};
  }
  return {Utf8::valid, lead.size};
}

size_t valid_prefix(std::string_view text) {
  size_t at = end_of_ascii(text, 0);
  while (at < text.size()) {
    const Utf8Char next = read_utf8(text.substr(at));
    if (next.kind != Utf8::valid) break;
    at = end_of_ascii(text, at + size_t(next.size));
  }
  return at;
}

std::string Utf8Stream::push(std::string_view bytes) {
  tail_ += bytes;
  std::string out;
  std::string_view rest = tail_;
  while (!rest.empty()) {
    const size_t ascii = end_of_ascii(rest, 0);
    out += rest.substr(0, ascii);
    rest.remove_prefix(ascii);
    if (rest.empty()) break;
    const Utf8Char next = read_utf8(rest);
    if (next.kind == Utf8::unfinished) break;
    out += next.kind == Utf8::valid ? rest.substr(0, next.size) : kReplacement;
    rest.remove_prefix(next.size);
  }
  tail_ = std::string(rest);
  return out;
}

std::string Utf8Stream::flush() {
  const std::string out(tail_.empty() ? std::string_view() : kReplacement);
  tail_.clear();
  return out;
}

}  // namespace chaski
