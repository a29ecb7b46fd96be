// Holds text back while it may still turn into a stop string.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

class StopFilter {
 public:
  // Error(usage) for one that is not UTF-8: it could cut a character in half
  explicit StopFilter(std::vector<std::string> stops);
  // What may be shown after `text` came; sets stopped() if a stop string is complete (nothing is
  // shown from its start on).
  std::string push(std::string_view text);
  std::string flush();  // the text has ended: what was held back
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace chaski
