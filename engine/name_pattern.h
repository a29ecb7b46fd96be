// A regular expression (PCRE2's) that is looked for in the names of tensors.
#pragma once
#include <memory>
#include <string_view>

namespace chaski {

class NamePattern {
 public:
  // Throws Error(usage): what PCRE2 says is wrong with it.
  explicit NamePattern(std::string_view pattern);
  // Whether it matches anywhere in the name. Throws Error(usage) when that takes a million steps.
  bool found_in(std::string_view name) const;

 private:
  std::shared_ptr<const void> code_;
};

}  // namespace chaski
