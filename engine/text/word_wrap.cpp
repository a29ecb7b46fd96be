#include "engine/text/word_wrap.h"

#include <fmt/format.h>
#include <utf8proc.h>

namespace chaski {

namespace {

constexpr std::string_view kFence = "```";
constexpr int kTab = 8;

struct Character {
  size_t bytes;
  int columns;
};

// The first one of a text. A byte that is not UTF-8 is a character with one column.
Character leading_character(std::string_view text) {
  utf8proc_int32_t code;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                  utf8proc_ssize_t(text.size()), &code);
  return n > 0 ? Character{size_t(n), utf8proc_charwidth(code)} : Character{1, 1};
}

}  // namespace

size_t terminal_columns(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Character c = leading_character(text);
    columns += size_t(c.columns);
    text.remove_prefix(c.bytes);
  }
  return columns;
}

void WordWrap::start_line() { column_ = 0, word_.clear(), word_width_ = 0, line_.clear(); }

std::string WordWrap::push(std::string_view text, int width) {
  std::string out;
  while (!text.empty()) {
    const auto [bytes, columns] = leading_character(text);
    const std::string_view character = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (line_.size() < kFence.size()) line_ += character;
    if (character == "\n") {
      if (line_ == kFence) code_ = !code_;
      out += character;
      start_line();
    } else if (character == "\t" || character == " ") {
      // A space at the edge ends the line and is not visible.
      const int wide = character == " " ? 1 : kTab - column_ % kTab;
      word_.clear(), word_width_ = 0;
      if (column_ + wide <= width || code_) out += character, column_ += wide;
    } else {
      put(character, columns, width, out);
    }
  }
  return out;
}

void WordWrap::put(std::string_view character, int wide, int width, std::string& out) {
  const bool breaks = !code_ && column_ + wide > width;
  if (breaks && word_width_ < column_ && word_width_ + wide <= width) {
    // Moves the cursor to an absolute column, because at the edge its position depends on the
    // terminal.
    if (word_width_ > 0) out += fmt::format("\033[{}G\033[K", column_ - word_width_ + 1);
    out += "\n" + word_;
    column_ = word_width_;
  } else if (column_ + wide > width) {
    column_ = 0, word_.clear(), word_width_ = 0;  // the terminal wraps the word itself
  }
  out += character;
  word_ += character;
  column_ += wide, word_width_ += wide;
}

}  // namespace chaski
