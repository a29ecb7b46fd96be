// GPT-2's byte-to-character alphabet, in which byte-level BPE vocabularies are stored. A printable
// Latin-1 character represents its own byte. The other 68 bytes are U+0100, U+0101, ... in order,
// so a space is U+0120. Source: "Language Models are Unsupervised Multitask Learners" (Radford et
// al. 2019), encoder.py.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace chaski {

std::string to_byte_alphabet(std::string_view bytes);

// nullopt if `text` has a character outside the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace chaski
