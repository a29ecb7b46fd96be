// A class around std::regex. Its templates add five seconds to the compile time of each file that
// uses them.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace chaski::test {

class StdRegex {
 public:
  explicit StdRegex(const std::string& expression, bool ignore_case = false);
  bool matches(const std::string& text) const;  // the whole text
  bool finds(const std::string& text) const;    // a part of it
  // What the first group has in each match.
  std::vector<std::string> all(const std::string& text) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace chaski::test
