#include "engine/text/word_wrap.h"

#include <fmt/format.h>
#include <utf8proc.h>

namespace chaski {

namespace {

constexpr std::string_view kFence = "```";
constexpr int kTab = 8;

}  // namespace

void WordWrap::start_line() { column_ = 0, word_.clear(), word_width_ = 0, line_.clear(); }

std::string WordWrap::push(std::string_view text, int width) {
  std::string out;
  while (!text.empty()) {
    utf8proc_int32_t code;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                    utf8proc_ssize_t(text.size()), &code);
    const size_t size = n > 0 ? size_t(n) : 1;
    const std::string_view character = text.substr(0, size);
    text.remove_prefix(size);
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
      put(character, n > 0 ? utf8proc_charwidth(code) : 1, width, out);
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
