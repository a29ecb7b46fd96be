// Holds text back as long as it may become a stop string.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

class StopFilter {
 public:
  // Throws Error(usage) for a stop string that is not UTF-8, because it could cut a character in
  // half.
  explicit StopFilter(std::vector<std::string> stops);
  // Takes the next part of the text and returns the part that can be shown. After a complete stop
  // string stopped() is true; the stop string and the text after it are not shown.
  std::string push(std::string_view text);
  // Returns the text held back. Call it at the end of the text.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace chaski
