#include "tests/kit/regex.h"

#include <regex>

namespace chaski::test {

struct StdRegex::Impl {
  std::regex expression;
};

StdRegex::StdRegex(const std::string& expression, bool ignore_case)
    : impl_(new Impl{std::regex(expression, ignore_case ? std::regex::icase | std::regex::ECMAScript
                                                        : std::regex::ECMAScript)}) {}

bool StdRegex::matches(const std::string& text) const {
  return std::regex_match(text, impl_->expression);
}

bool StdRegex::finds(const std::string& text) const {
  return std::regex_search(text, impl_->expression);
}

std::vector<std::string> StdRegex::all(const std::string& text) const {
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), impl_->expression), end; at != end; ++at)
    found.push_back((*at)[1].str());
  return found;
}

}  // namespace chaski::test
