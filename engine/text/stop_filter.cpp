#include "engine/text/stop_filter.h"

#include <algorithm>
#include <utility>

#include "engine/text/utf8.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
  for (const std::string& s : stops_) {
    Utf8Stream whole;
    if (whole.push(s) + whole.flush() != s)
      fail(Exit::usage, "--stop is {}, expected UTF-8 text", escaped(s));
  }
}

std::string StopFilter::push(std::string_view text) {
  held_ += text;
  size_t found = std::string::npos;
  for (const std::string& s : stops_) found = std::min(found, held_.find(s));
  if (found != std::string::npos) {
    stopped_ = true;
    held_.resize(found);
    return std::exchange(held_, {});
  }
  // The longest end of the text that is a prefix of a stop string.
  size_t keep = 0;
  for (const std::string& s : stops_)
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n)
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(s).substr(0, n))
        keep = n;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopFilter::flush() { return std::exchange(held_, {}); }

}  // namespace chaski
