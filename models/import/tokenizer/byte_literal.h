// Pieces of RWKV's vocabulary as Python writes them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace chaski {

// The inside of a bytes literal, as GGUF stores a piece: printable ASCII as it is, other bytes as
// \t, \n, \r, \\, \' and \xNN. The reader takes \" and other bytes too.
std::string literal_of_bytes(std::string_view bytes);
// nullopt if a backslash is followed by anything else.
std::optional<std::string> bytes_of_literal(std::string_view literal);
// A whole literal, a text ('...' or "...", in which \xNN, \uNNNN and \UNNNNNNNN are characters,
// returned in UTF-8) or bytes (with b in front). nullopt if it is neither.
std::optional<std::string> bytes_of_python(std::string_view literal);

}  // namespace chaski
