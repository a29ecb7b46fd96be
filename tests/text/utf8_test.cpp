// UTF-8 decoding and the byte alphabet.
#include "engine/text/utf8.h"

#include <vector>

#include "engine/text/tokenizer/byte_alphabet.h"
#include "tests/kit/support.h"

using namespace chaski;

TEST_CASE("utf8: a stream gives whole characters") {
  const std::string text = "aé我😀";
  Utf8Stream stream;
  std::vector<std::string> out;
  for (char byte : text) out.push_back(stream.push({&byte, 1}));
  CHECK_EQ(out, std::vector<std::string>{"a", "", "é", "", "", "我", "", "", "", "😀"});
  CHECK_EQ(stream.flush(), "");
  CHECK_EQ(stream.push("x\xF0\x9F"), "x");
  CHECK_EQ(stream.push("y"), "\uFFFDy");
  CHECK_EQ(stream.push("\xE6\x88"), "");
  CHECK_EQ(stream.flush(), "\uFFFD");
  CHECK_EQ(stream.flush(), "");
  // Overlong, surrogate, above U+10FFFF, stray: one U+FFFD for each longest start (Unicode 15,
  // table 3-8).
  CHECK_EQ(stream.push("\xC0\xAF|\xED\xA0\x80|\xF4\x90\x80\x80|\x80|\xE1\x80|"),
           "\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD\uFFFD|\uFFFD|\uFFFD|");
}

TEST_CASE("byte alphabet: 256 characters and back") {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  CHECK_EQ(to_byte_alphabet(" \n!\xAD"), "\u0120\u010A!\u0143");
  CHECK_EQ(from_byte_alphabet(to_byte_alphabet(bytes)), bytes);
  CHECK_EQ(from_byte_alphabet("a b"), std::nullopt);
  CHECK_EQ(from_byte_alphabet("\u0144"), std::nullopt);
  CHECK_EQ(from_byte_alphabet("\xFF"), std::nullopt);
}
