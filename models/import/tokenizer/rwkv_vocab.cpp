// The vocabulary of RWKV's World models, rwkv_vocab_v20230424.txt: lines of an id, the piece as a
// literal of Python, and its number of bytes. Id 0 is not listed; it begins and ends texts.
#include <fmt/format.h>
#include <utf8proc.h>

#include <charconv>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/import/tokenizer/byte_literal.h"
#include "models/import/tokenizer/tokenizer_parts.h"

namespace chaski {
namespace {

// A number of `digits` digits at the front of `text`, which it removes.
std::optional<uint32_t> take_hex(std::string_view& text, size_t digits) {
  uint32_t number = 0;
  if (text.size() < digits) return std::nullopt;
  const char* const end = text.data() + digits;
  if (std::from_chars(text.data(), end, number, 16).ptr != end) return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

bool append_character(std::string& out, uint32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
  return true;
}

// `characters`: the literal is a text, so numbers are characters.
std::optional<std::string> unescaped(std::string_view text, bool characters) {
  std::string out;
  while (!text.empty()) {
    const char c = text[0];
    text.remove_prefix(1);
    if (c != '\\') {
      out += c;
      continue;
    }
    if (text.empty()) return std::nullopt;
    const char kind = text[0];
    text.remove_prefix(1);
    constexpr std::string_view kSigns = "tnr\\'\"", kMeant = "\t\n\r\\'\"";
    if (const size_t at = kSigns.find(kind); at != std::string_view::npos) {
      out += kMeant[at];
      continue;
    }
    const size_t digits = kind == 'x'                 ? 2
                          : characters && kind == 'u' ? 4
                          : characters && kind == 'U' ? 8
                                                      : 0;
    const auto number = digits ? take_hex(text, digits) : std::nullopt;
    if (!number) return std::nullopt;
    if (!characters)
      out += static_cast<char>(*number);
    else if (!append_character(out, *number))
      return std::nullopt;
  }
  return out;
}

[[noreturn]] void wrong_line(const std::string& path, size_t line, std::string_view found,
                             std::string_view expected) {
  fail(Exit::bad_file, "{}: line {} is \"{}\", expected {}", path, line, escaped(found), expected);
}

}  // namespace

std::string literal_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr std::string_view kEscaped = "\t\n\r\\'", kSigns = "tnr\\'";
    if (const size_t at = kEscaped.find(c); at != std::string_view::npos)
      out += {'\\', kSigns[at]};
    else if (c < ' ' || c > '~')
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out;
}

std::optional<std::string> bytes_of_literal(std::string_view literal) {
  return unescaped(literal, false);
}

std::optional<std::string> bytes_of_python(std::string_view literal) {
  const bool bytes = literal.starts_with('b');
  if (bytes) literal.remove_prefix(1);
  if (literal.size() < 2 || (literal[0] != '\'' && literal[0] != '"') ||
      literal.back() != literal[0])
    return std::nullopt;
  return unescaped(literal.substr(1, literal.size() - 2), !bytes);
}

TokenizerParts read_rwkv_vocab(const std::string& path) {
  TokenizerParts parts;
  parts.file = path;
  parts.kind = "rwkv";
  const auto mapping = Mapping::open(path);
  std::string_view lines(reinterpret_cast<const char*>(mapping->bytes().data()),
                         mapping->bytes().size());
  for (size_t number = 1; !lines.empty(); ++number) {
    std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t after_id = line.find(' '), before_size = line.rfind(' ');
    int64_t id = 0;
    size_t size = 0;
    if (after_id == before_size ||
        std::from_chars(line.data(), line.data() + after_id, id).ptr != line.data() + after_id ||
        std::from_chars(line.data() + before_size + 1, line.data() + line.size(), size).ptr !=
            line.data() + line.size())
      wrong_line(path, number, line, "an id, a literal of Python and its number of bytes");
    const auto bytes = bytes_of_python(line.substr(after_id + 1, before_size - after_id - 1));
    if (!bytes || bytes->size() != size)
      wrong_line(path, number, line, fmt::format("a literal of Python of {} bytes", size));
    ++parts.pieces;
    parts.put(id, literal_of_bytes(*bytes), kNormal);
  }
  return parts;
}

}  // namespace chaski
