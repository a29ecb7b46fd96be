#include "main/terminal/utf8_note.h"

#include <fmt/format.h>

#include <string>

#include "engine/text/utf8.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

// Tokenizers that normalize text replace such a byte. The others keep it, if they have a token for
// it.
const char* fate_of(char byte, const Tokenizer& tokenizer) {
  std::string read;
  for (const TokenId token : tokenizer.encode({&byte, 1})) read += tokenizer.piece(token);
  return read.find(kReplacement) != std::string::npos ? "the tokenizer replaces by U+FFFD"
         : read.find(byte) != std::string::npos       ? "the tokenizer keeps"
                                                      : "the tokenizer drops";
}

}  // namespace

void put_utf8_note(std::string_view what, std::string_view text, const Tokenizer& tokenizer) {
  const size_t at = valid_prefix(text);
  if (at < text.size())
    put_notice(fmt::format(
        "{} is not UTF-8: the byte at offset {} is \\x{:02x}, which {}; is it UTF-16 or "
        "Latin-1?",
        what, at, uint8_t(text[at]), fate_of(text[at], tokenizer)));
}

}  // namespace chaski
