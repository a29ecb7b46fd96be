// Regular expressions of PCRE2, and searching for them in texts.
#pragma once
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace chaski {

// PCRE2's message about an invalid pattern; `at` is a byte offset in the pattern.
struct PatternError {
  std::string what;
  size_t at = 0;
};

// May be used by several threads at the same time.
class Pattern {
 public:
  // Matches bytes, or the characters of valid UTF-8 with Unicode's classes.
  enum class Of { bytes, characters };
  // Throws PatternError for an invalid regular expression.
  Pattern(std::string_view pattern, Of of);

 private:
  friend class PatternSearch;
  std::shared_ptr<const pcre2_real_code_8> code_;
};

// The working state of a search; one object serves many searches.
class PatternSearch {
 public:
  // Each search takes at most `steps` of PCRE2's steps.
  explicit PatternSearch(size_t steps);
  // Searches for a match at byte `from` or later. With `empty_elsewhere`, an empty match at `from`
  // itself does not count. Throws PatternError when the steps are used up.
  bool find(const Pattern& pattern, std::string_view text, size_t from = 0,
            bool empty_elsewhere = false);
  // Bounds of the last match.
  size_t begin() const;
  size_t end() const;

 private:
  std::unique_ptr<pcre2_real_match_data_8, void (*)(pcre2_real_match_data_8*)> match_;
  std::unique_ptr<pcre2_real_match_context_8, void (*)(pcre2_real_match_context_8*)> limits_;
};

}  // namespace chaski
