// What the parsers of grammars share: the text character by character, and what GBNF and regular
// expressions write alike.
#pragma once
#include <optional>

#include "engine/grammar/rules.h"

namespace chaski {

// Larger grammars than this are not read, nor groups nested deeper.
constexpr size_t kMostGrammarBytes = 1 << 20;
constexpr int kMostGroups = 256;

void expect_size(const GrammarSource& source);  // throws an Error for a text that is too long

class GrammarReader {
 public:
  // Throws what expect_size() throws.
  explicit GrammarReader(const GrammarSource& source);

  bool at_end() const { return at_ == source_.text.size(); }
  size_t at() const { return at_; }
  void go_to(size_t at) { at_ = at; }
  char next() const { return at_end() ? '\0' : source_.text[at_]; }
  bool sees(std::string_view text) const { return rest().starts_with(text); }
  // Goes on behind it, if it is next.
  bool take(std::string_view text);
  // The next character. Throws an Error at the end, and where the text is not UTF-8.
  uint32_t character();
  // What a backslash means that stands in front: \n \r \t \f \v \0 \xHH \uHHHH \UHHHHHHHH. Nothing,
  // and nothing is read, if it is none of them.
  std::optional<uint32_t> escape();
  // * + ? {m} {m,} {m,n}, or once if none of them is next.
  struct Repeats {
    int least = 1, most = 1;
  };
  std::optional<Repeats> repeats();

  [[noreturn]] void expected(std::string_view what) const { source_.expected(at_, what); }
  [[noreturn]] void wrong(size_t at, const std::string& what) const { source_.wrong(at, what); }

 private:
  std::string_view rest() const { return std::string_view(source_.text).substr(at_); }
  uint32_t hex(int digits);
  int number();

  const GrammarSource& source_;
  size_t at_ = 0;
};

}  // namespace chaski
