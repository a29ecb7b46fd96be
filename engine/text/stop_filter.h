// Holds text back while it may still turn into a stop string.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

class StopFilter {
 public:
  // Throws Error(usage) for a stop string that is not UTF-8: it could cut a character in half.
  explicit StopFilter(std::vector<std::string> stops);
  // Takes the next part of the text and returns what may be shown by now. When a stop string is
  // complete, stopped() becomes true, and neither it nor anything behind it is shown.
  std::string push(std::string_view text);
  // To be called when the text has ended: returns what was held back.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace chaski
