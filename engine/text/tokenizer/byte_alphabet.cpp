#include "engine/text/tokenizer/byte_alphabet.h"

#include <utf8proc.h>

#include <array>

namespace chaski {

namespace {

struct Alphabet {
  std::array<int, 256> code{};    // byte -> character
  std::array<int, 0x144> byte{};  // character -> byte, or -1

  constexpr Alphabet() {
    byte.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      code[b] = printable ? b : next++;
      byte[code[b]] = b;
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (unsigned char byte : bytes) {
    utf8proc_uint8_t buffer[4];
    const auto size = utf8proc_encode_char(kAlphabet.code[byte], buffer);
    out.append(reinterpret_cast<const char*>(buffer), size);
  }
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    utf8proc_int32_t code = -1;
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    const auto size = utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(text.size()), &code);
    if (size <= 0 || code >= static_cast<int>(kAlphabet.byte.size()) || kAlphabet.byte[code] < 0)
      return std::nullopt;
    out += static_cast<char>(kAlphabet.byte[code]);
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace chaski
