// Regular expressions as PCRE2 reads them, and looking for them in texts.
#pragma once
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace chaski {

// What is wrong, in PCRE2's words; `at` is a byte of the pattern.
struct PatternError {
  std::string what;
  size_t at = 0;
};

// Any number of threads may look for one at once.
class Pattern {
 public:
  // Of bytes, or of the characters of a text that is valid UTF-8, with Unicode's classes.
  enum class Of { bytes, characters };
  // Throws PatternError for what is no regular expression.
  Pattern(std::string_view pattern, Of of);

 private:
  friend class PatternSearch;
  std::shared_ptr<const pcre2_real_code_8> code_;
};

// What looking needs beside the pattern; made once for many looks.
class PatternSearch {
 public:
  // Each look takes at most so many of PCRE2's steps.
  explicit PatternSearch(size_t steps);
  // Whether there is a match at byte `from` or behind it (`empty_elsewhere`: one without a
  // character does not count at `from` itself). Throws PatternError when the steps are spent.
  bool find(const Pattern& pattern, std::string_view text, size_t from = 0,
            bool empty_elsewhere = false);
  // Of what was found last.
  size_t begin() const;
  size_t end() const;

 private:
  std::unique_ptr<pcre2_real_match_data_8, void (*)(pcre2_real_match_data_8*)> match_;
  std::unique_ptr<pcre2_real_match_context_8, void (*)(pcre2_real_match_context_8*)> limits_;
};

}  // namespace chaski
