// The byte-to-character alphabet of GPT-2, in which byte-level BPE vocabularies are written down: a
// printable Latin-1 character stands for its own byte, the other 68 bytes are U+0100, U+0101, ...
// in order, so that a space is U+0120. Facts from "Language Models are Unsupervised Multitask
// Learners" (Radford et al. 2019), encoder.py.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace chaski {

std::string to_byte_alphabet(std::string_view bytes);

// nullopt if `text` has a character outside the alphabet: then it is not written in it.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace chaski
