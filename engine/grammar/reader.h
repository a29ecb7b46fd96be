// Reads the text of a grammar character by character, with the syntax that GBNF and regular
// expressions share.
#pragma once
#include <optional>

#include "engine/grammar/rules.h"

namespace chaski {

// Limits of the size of a grammar and of the nesting of groups.
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
  // Skips `text` and returns true, if it is next.
  bool take(std::string_view text);
  // The next character. Throws an Error at the end, and where the text is not UTF-8.
  uint32_t character();
  // The character of an escape sequence after its backslash: \n \r \t \f \v \0 \xHH \uHHHH
  // \UHHHHHHHH. If there is none of these, it reads and returns nothing.
  std::optional<uint32_t> escape();
  // Reads * + ? {m} {m,} or {m,n}; nothing if none of these is next. `blanks`: spaces are allowed
  // inside the braces.
  struct Repeats {
    int least = 1, most = 1;
  };
  std::optional<Repeats> repeats(bool blanks = false);

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
