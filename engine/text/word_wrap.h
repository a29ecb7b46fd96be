// Text that comes in pieces, broken between words instead of at the terminal's edge. A word is
// shown as it comes; when it reaches the edge, it is taken back and begins the next line. Between
// lines that begin with ``` nothing is broken, so that code can be copied.
#pragma once
#include <string>
#include <string_view>

namespace chaski {

class WordWrap {
 public:
  // What is to be written for `text`, whole UTF-8 characters without controls other than newline
  // and tab, on a terminal of `width` columns.
  std::string push(std::string_view text, int width);
  // Somebody else has ended the line.
  void start_line();
  // A line has begun and not ended.
  bool in_line() const { return column_ > 0; }

 private:
  void put(std::string_view character, int wide, int width, std::string& out);

  int column_ = 0;
  std::string line_;  // as much of its beginning as ``` has
  std::string word_;  // so far
  int word_width_ = 0;
  bool code_ = false;
};

}  // namespace chaski
