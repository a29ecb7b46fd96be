// Makes text safe for a terminal, refuses files that are cut short, and reports a failed ENSURE.
#include "ggml-like-tensor/base/error.h"

#include <utf8proc.h>

#include <cstdio>
#include <cstdlib>

namespace chaski {

namespace {

// C0, DEL and C1: characters that control a terminal. Invalid UTF-8 is -1 and also unsafe.
bool is_unsafe(utf8proc_int32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

}  // namespace

size_t escape(std::string_view text, char* out, size_t room) {
  size_t size = 0;
  while (!text.empty()) {
    utf8proc_int32_t code = -1;
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    const auto length = utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(text.size()), &code);
    // On invalid UTF-8, takes one byte at a time, so that the next valid character is found.
    const std::string_view piece = text.substr(0, length > 0 ? length : 1);
    if (size + 4 * piece.size() > room) return size;
    for (const unsigned char byte : piece) {
      const char hex[] = {'\\', 'x', "0123456789abcdef"[byte / 16], "0123456789abcdef"[byte % 16]};
      const std::string_view shown = code == '\n'      ? std::string_view("\\n")
                                     : is_unsafe(code) ? std::string_view(hex, sizeof hex)
                                                       : std::string_view();
      for (const char c : shown) out[size++] = c;
      if (shown.empty()) out[size++] = char(byte);
    }
    text.remove_prefix(piece.size());
  }
  return size;
}

std::string escaped(std::string_view text) {
  std::string out(4 * text.size(), '\0');
  out.resize(escape(text, out.data(), out.size()));
  return out;
}

std::string readable(const std::string& line) {
  constexpr size_t kMost = 1000, kTail = 300;
  constexpr std::string_view kCut = " ... ";
  if (line.size() <= kMost) return line;
  const auto inside = [&](size_t at) { return (line[at] & 0xc0) == 0x80; };  // inside a character
  size_t head = kMost - kTail - kCut.size(), tail = line.size() - kTail;
  while (head > 0 && inside(head)) --head;
  while (tail < line.size() && inside(tail)) ++tail;
  return line.substr(0, head) + std::string(kCut) + line.substr(tail);
}

namespace {

std::string found_text(uint64_t bytes, uint64_t whole) {
  return fmt::format("{}% of it is there, {} of {} bytes", int(100 * double(bytes) / double(whole)),
                     bytes, whole);
}

std::string cut_line(const std::string& file, const std::string& found) {
  return fmt::format("{}: the file is cut short: {}", file, found);
}

}  // namespace

CutShort::CutShort(const std::string& file, uint64_t bytes, uint64_t whole)
    : Error(Exit::bad_file, cut_line(file, found_text(bytes, whole)) + ": download the rest"),
      file(file),
      found(found_text(bytes, whole)) {}

std::string CutShort::without_advice() const { return cut_line(file, found); }

void check_failed(const char* file, int line, const char* condition, const char* why) {
  std::fprintf(stderr, "chaski: bug: %s:%d: %s does not hold: %s\n", file, line, condition, why);
  std::abort();
}

}  // namespace chaski
