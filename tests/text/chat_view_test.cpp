// Answers on a terminal: line breaks between words, thinking, and repetition.
#include <random>

#include "engine/conversation/thoughts.h"
#include "engine/text/repeated_end.h"
#include "engine/text/word_wrap.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

// A terminal that understands the output of WordWrap. After a character in the last column the
// cursor stays there until the next character.
class Paper {
 public:
  explicit Paper(int width) : width_(width) {}

  void write(std::string_view text) {
    while (!text.empty()) {
      if (text.starts_with("\033[K")) {
        lines_.back().resize(size_t(column_));
        text.remove_prefix(3);
      } else if (text.starts_with("\033[")) {
        const size_t end = text.find('G');
        column_ = std::stoi(std::string(text.substr(2, end - 2))) - 1;
        text.remove_prefix(end + 1);
      } else {
        put(text[0]);
        text.remove_prefix(1);
      }
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void put(char c) {
    if (c == '\n' || column_ == width_) lines_.emplace_back(), column_ = 0;
    if (c == '\n') return;
    lines_.back().resize(size_t(column_));
    lines_.back() += c, ++column_;
  }

  int width_, column_ = 0;
  std::vector<std::string> lines_{""};
};

// The lines of a text if words that do not fit begin the next line.
std::vector<std::string> by_words(const std::string& text, size_t width) {
  std::vector<std::string> lines{""};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    std::string word = text.substr(at, end - at);
    if (!lines.back().empty() && lines.back().size() + word.size() > width && !word.empty())
      lines.emplace_back();
    for (const char c : word) {
      if (lines.back().size() == width) lines.emplace_back();
      lines.back() += c;
    }
    if (end < text.size() && text[end] == '\n') lines.emplace_back();
    if (end < text.size() && text[end] == ' ' && lines.back().size() < width) lines.back() += ' ';
    at = end + 1;
  }
  if (text.ends_with('\n') && lines.back() != "") lines.emplace_back();
  return lines;
}

TEST_CASE("view: lines break between words, for any pieces of the text") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (unsigned words = random() % 40; words > 0; --words) {
      text += std::string(1 + random() % (round % 7 == 0 ? 30 : 9), char('a' + random() % 26));
      text += random() % 9 == 0 ? "\n" : " ";
    }
    const int width = 12 + round % 20;
    CAPTURE(text);
    CAPTURE(width);
    Paper paper(width);
    WordWrap wrap;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 7;
      paper.write(wrap.push(std::string_view(text).substr(at, n), width));
      at += n;
    }
    CHECK(paper.lines() == by_words(text, size_t(width)));
  }
}

TEST_CASE("view: wide characters have two columns, combining ones none, and code is not wrapped") {
  const auto wrapped = [](std::string_view text, int width) {
    return WordWrap().push(text, width);
  };
  CHECK(wrapped("ab \u4f60\u597d\u5417", 8) == "ab \u4f60\u597d\033[4G\033[K\n\u4f60\u597d\u5417");
  CHECK(wrapped("ab e\u0301e\u0301e\u0301", 6) == "ab e\u0301e\u0301e\u0301");
  CHECK(wrapped("```\nlong lines of code\n```\nab cd", 4) ==
        "```\nlong lines of code\n```\nab c\033[4G\033[K\ncd");
}

TEST_CASE("view: the columns of a text are those that a terminal shows") {
  CHECK(terminal_columns("") == 0);
  CHECK(terminal_columns("ab \u4f60\u597d") == 7);
  CHECK(terminal_columns("e\u0301\xff.") == 3);  // a byte that is not UTF-8 is one column
}

TEST_CASE("view: thinking is the text between its marks at the beginning, for any pieces") {
  const auto parts = [](const std::string& text, bool thinks, size_t piece) {
    std::string thought, answer;
    Thoughts thoughts(thinks);
    const auto take = [&](const std::vector<Thoughts::Part>& all) {
      for (const auto& part : all) (part.is_thought ? thought : answer) += part.text;
    };
    for (size_t at = 0; at < text.size(); at += piece)
      take(thoughts.push(std::string_view(text).substr(at, piece)));
    take(thoughts.flush());
    return std::pair(thought, answer);
  };
  using Pair = std::pair<std::string, std::string>;
  for (const size_t piece : {1, 2, 3, 5, 100}) {
    CAPTURE(piece);
    CHECK(parts("\n<think>\na < b</thin </think>\n\nYes.", false, piece) ==
          Pair("\n<think>\na < b</thin </think>", "\n\nYes."));
    CHECK(parts("so </think>Yes </think>", true, piece) == Pair("so </think>", "Yes </think>"));
    CHECK(parts("Yes. <think>no</think>", false, piece) == Pair("", "Yes. <think>no</think>"));
    CHECK(parts("<think>and on </th", false, piece) == Pair("<think>and on </th", ""));
    CHECK(parts("<thi", false, piece) == Pair("", "<thi"));
    CHECK(parts("  ", false, piece) == Pair("", "  "));
  }
}

TEST_CASE("view: a text repeated at the end is found") {
  const std::string once = "The cat sat on the mat. ";
  CHECK(repeated_end("Once. " + once + once + once + once, 4, 16) == once.size());
  CHECK(repeated_end("Once. " + once + once + once, 4, 16) == 0);
  CHECK(repeated_end(once + once + "And " + once + once, 4, 16) == 0);
  CHECK(repeated_end(std::string(200, ' '), 4, 16) == 0);
  CHECK(repeated_end("", 4, 16) == 0);
}

}  // namespace
}  // namespace chaski::test
