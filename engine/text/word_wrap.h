// Wraps streamed text between words instead of at the terminal's edge. A word is shown as it
// arrives; when it reaches the edge, it is erased and moved to the next line. Text between lines
// that begin with ``` is not wrapped, so that code can be copied.
#pragma once
#include <string>
#include <string_view>

namespace chaski {

// The columns of a text without controls on a terminal: a wide character, such as a Chinese one,
// has two.
size_t terminal_columns(std::string_view text);

class WordWrap {
 public:
  // The output for `text` on a terminal of `width` columns. `text` has whole UTF-8 characters and
  // no controls other than newline and tab.
  std::string push(std::string_view text, int width);
  // Other output has ended the line.
  void start_line();
  // True if a line has begun and not ended.
  bool in_line() const { return column_ > 0; }

 private:
  void put(std::string_view character, int wide, int width, std::string& out);

  int column_ = 0;
  std::string line_;  // at most its first three characters, to detect ```
  std::string word_;  // the word so far
  int word_width_ = 0;
  bool code_ = false;
};

}  // namespace chaski
